// SPDX-License-Identifier: Apache-2.0
// What a length limit does and does not do to rows of every type.
#include <doctest/doctest.h>

#include "behaviour_testing.h"
#include "finetune/data/chat/chat_encoder.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

const std::string kChats =
    chat_row({{"user", "Which river is long?"}, {"assistant", "The Nile, I think."}}) +
    chat_row(
        {{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yo"}, {"user", "And?"}, {"assistant", "No more."}});

struct Kind {
  const char* name;
  DatasetType type;
  std::string rows, ending;  // ending: of what is supervised
};
std::vector<Kind> kinds() {
  return {{"chat", DatasetType::chat, kChats, "<|im_end|>\n]"},
          {"alpaca", DatasetType::alpaca,
           row_of({{"instruction", "Add."}, {"input", "1 2"}, {"output", "3"}}) +
               row_of({{"instruction", "Say hello to all of them."}, {"output", "Hello"}}),
           "<|im_end|>\n]"},
          {"prompt_completion", DatasetType::prompt_completion,
           row_of({{"prompt", "Q: why?\nA:"}, {"completion", " because of the river"}}) +
               row_of({{"prompt", "x"}, {"completion", "y"}}),
           "</s>]"},
          {"text", DatasetType::text, row_of({{"text", "The quick brown fox"}}) + row_of({{"text", "and"}}), "</s>]"}};
}

}  // namespace

TEST_CASE("a limit that is not reached changes nothing, for rows of every type under every strategy") {
  for (const Kind& kind : kinds()) {
    CAPTURE(std::string(kind.name));
    ModelFolder m;
    m.spec.type = kind.type;
    const Dataset want = m.read(kind.rows);
    REQUIRE(want.samples.size() == 2);
    for (size_t i = 0; i < 2; ++i) CHECK(m.supervised(want, i).ends_with(kind.ending));
    for (const auto strategy : {ExcessLength::drop, ExcessLength::truncate, ExcessLength::raise, ExcessLength::split}) {
      if (strategy == ExcessLength::split && kind.type != DatasetType::text) continue;
      m.options.excess_length_strategy = strategy;
      m.options.max_seq_length = want.report.longest_row;
      m.options.max_excess_fraction = 0;
      const Dataset got = m.read(kind.rows);
      CHECK(same_samples(got.samples, want.samples));
      CHECK(got.report.affected.empty());
      CHECK(got.report.rows_too_long == 0);
      CHECK(got.report.tokens_lost == 0);
      // One token less, and it is reached.
      m.options.max_excess_fraction = 1;
      m.options.max_seq_length = want.report.longest_row - 1;
      if (strategy == ExcessLength::raise) {
        CHECK(contains(m.error(kind.rows), "1 of 2 rows"));
      } else {
        CHECK(m.read(kind.rows).report.rows_too_long == 1);
      }
    }
  }
}

TEST_CASE("whether a row has a target is seen after it is cut: chat rows") {
  ModelFolder m;
  const std::string asked = chat_row({{"user", "Which river is long?"}, {"assistant", "The Nile."}});
  const std::string brief = chat_row({{"user", "a"}, {"assistant", "b"}});
  const Dataset all = m.read(asked + brief);
  const SampleView row = all.samples[0];
  const auto prompt = static_cast<int64_t>(std::find(row.trained.begin(), row.trained.end(), 1) - row.trained.begin());
  REQUIRE(prompt > static_cast<int64_t>(all.samples[1].ids.size()));
  m.options.excess_length_strategy = ExcessLength::truncate;
  // The prompt fits, and nothing else.
  m.options.max_seq_length = prompt;
  const Dataset none = m.read(asked + brief);
  CHECK(none.samples.size() == 1);
  CHECK(none.report.rows_dropped == 1);
  CHECK(none.report.rows_cut == 0);
  CHECK(none.report.rows_without_target == 1);
  REQUIRE(none.report.affected.size() == 1);
  CHECK(none.report.affected[0].line == 1);
  CHECK(contains(none.report.affected[0].what, "no trained token is left after cutting"));
  // One token more is a target.
  m.options.max_seq_length = prompt + 1;
  const Dataset one = m.read(asked + brief);
  REQUIRE(one.samples.size() == 2);
  CHECK(one.samples[0].targets() == 1);
  CHECK(one.report.rows_cut == 1);
  CHECK(one.report.rows_without_target == 0);
  // The prompt alone is over the limit.
  m.options.max_seq_length = prompt - 1;
  for (const auto strategy : {ExcessLength::truncate, ExcessLength::drop}) {
    m.options.excess_length_strategy = strategy;
    const Dataset cut = m.read(asked + brief);
    CHECK(cut.samples.size() == 1);
    CHECK(cut.report.rows_dropped == 1);
    // Nothing is left: an error with the counts and the longest length.
    const std::string e = m.error(asked + asked);
    CHECK(contains(e, "no trained token in any of 2 rows: 2 dropped, 2 over max_seq_length"));
    CHECK(contains(e, str("the longest row has ", row.ids.size(), " tokens")));
    CHECK(contains(e, "gradient_checkpointing"));
  }
}

TEST_CASE("a conversation that is cut keeps the answers that fit, and loses what is counted as lost") {
  ModelFolder m;
  const std::string row = chat_row(
      {{"user", "Hi"}, {"assistant", "The river."}, {"user", "Which one of them?"}, {"assistant", "The long one."}});
  const Dataset whole = m.read(row);
  const auto& trained = whole.samples[0].trained;
  const auto first = std::find(trained.begin(), trained.end(), 1), end = std::find(first, trained.end(), 0);
  m.options.excess_length_strategy = ExcessLength::truncate;
  m.options.max_seq_length = end - trained.begin() + 1;  // into the second question
  const Dataset cut = m.read(row);
  CHECK(m.supervised(cut, 0) == "[The river.<|im_end|>\n]");
  CHECK(cut.report.supervised_tokens + cut.report.supervised_tokens_lost == whole.report.supervised_tokens);
  CHECK(cut.report.tokens + cut.report.tokens_lost == whole.report.tokens);
}

TEST_CASE("before training: rows read, kept, cut and dropped, each that was touched with its physical line") {
  ModelFolder m;
  const std::string brief = chat_row({{"user", "a"}, {"assistant", "b"}});
  const std::string lengthy = chat_row({{"user", "a"}, {"assistant", std::string(400, 'x')}});
  const std::string late = chat_row({{"user", std::string(400, 'q')}, {"assistant", "b"}});
  const std::string silent = R"({"messages": [{"role": "user", "content": "a"}, )"
                             R"({"role": "assistant", "content": "b", "train": false}]})"
                             "\n";
  // Lines 2, 5 and 7 are blank.
  const std::string content = brief + "\n" + lengthy + late + "  \r\n" + silent + "\n" + lengthy + brief;
  m.options.max_seq_length = 100;
  m.options.excess_length_strategy = ExcessLength::truncate;
  const DataReport r = m.read(content).report;
  CHECK(r.rows_read == 6);
  CHECK(r.rows_kept == 4);
  CHECK(r.rows_cut == 2);
  CHECK(r.rows_dropped == 2);
  CHECK(r.rows_without_target == 2);
  CHECK(r.rows_too_long == 3);
  std::vector<int64_t> lines;
  for (const RowRef& row : r.affected) {
    lines.push_back(row.line);
    CHECK(row.file.ends_with("d.jsonl"));
  }
  CHECK(lines == std::vector<int64_t>{3, 4, 6, 8});
  CHECK(contains(r.summary(), "6 rows read, 4 kept, 2 of them cut, 2 dropped (2 without a trained token)"));
  const auto j = json::parse(r.to_json());
  REQUIRE(j.at("affected").size() == 4);
  CHECK(j.at("affected")[3].at("line") == 8);
  CHECK(j.at("rows_dropped") == 2);
  m.options.excess_length_strategy = ExcessLength::drop;
  CHECK(m.read(content).report.rows_kept == 2);
  // The policy that asks.
  m.options.excess_length_strategy = ExcessLength::raise;
  const std::string e = m.error(content);
  CHECK(contains(e, "d.jsonl:3: 3 of 6 rows are over max_seq_length 100"));
  CHECK(contains(e, str("the longest has ", r.longest_row)));
  CHECK(contains(e, "excess_length_strategy is raise"));
}

TEST_CASE("a chat row is never split, however its type came about; pieces of a text are the text") {
  ModelFolder m;
  m.options.excess_length_strategy = ExcessLength::split;
  m.options.max_seq_length = 20;
  for (const Kind& kind : kinds()) {
    CAPTURE(std::string(kind.name));
    for (const auto type : {kind.type, DatasetType::automatic}) {
      m.spec.type = type;
      if (kind.type == DatasetType::text) continue;
      CHECK(contains(m.error(kind.rows, ErrorCode::usage), "would stand without its prompt"));
    }
  }
  m.spec.type = DatasetType::automatic;
  m.options.max_seq_length = 5;
  const Dataset d = m.read(row_of({{"text", "The quick brown fox, isn't it?"}}));
  REQUIRE(d.samples.size() > 2);
  std::vector<int32_t> joined;
  for (const auto& s : d.samples) joined.insert(joined.end(), s.ids.begin(), s.ids.end());
  m.options.max_seq_length = 4000;
  const Dataset whole = m.read(row_of({{"text", "The quick brown fox, isn't it?"}}));
  const auto& all = whole.samples[0].ids;
  CHECK(all.size() - joined.size() == (all.size() % 5 == 1 ? 1 : 0));  // a single token cannot be trained
  CHECK(std::equal(joined.begin(), joined.end(), all.begin()));
}

TEST_CASE("a dataset without any target is an error before training") {
  ModelFolder m;
  const std::string silent = R"({"messages": [{"role": "user", "content": "a"}, )"
                             R"({"role": "assistant", "content": "b", "weight": 0}]})"
                             "\n";
  const std::string e = m.error(silent + silent);
  CHECK(contains(e, "no trained token in any of 2 rows: 2 dropped"));
  CHECK(contains(e, "2 without a trained token"));
  // Beside rows that have one it is dropped and counted.
  const Dataset d = m.read(silent + chat_row({{"user", "a"}, {"assistant", "b"}}));
  CHECK(d.samples.size() == 1);
  CHECK(d.report.rows_without_target == 1);
  // No row has the role that is to be trained: said for the first one.
  m.options.mask.roles_to_train = {"tool"};
  CHECK(contains(m.error(chat_row({{"user", "a"}, {"assistant", "b"}})),
                 "d.jsonl:1: no message is trained: the roles are user, assistant, roles_to_train has tool"));
}
