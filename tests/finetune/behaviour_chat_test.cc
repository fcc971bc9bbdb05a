// SPDX-License-Identifier: Apache-2.0
// Conversations through templates of every kind: what is trained, what is refused, and what is prepared anew.
#include <doctest/doctest.h>

#include <functional>

#include "behaviour_testing.h"
#include "finetune/data/chat/chat_encoder.h"
#include "finetune/text/named_templates.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

const std::string kRow = chat_row({{"user", "Which river?"}, {"assistant", "The long one."}});
const std::string kSystem = chat_row({{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yo"}});

ordered_json with_calls(const ordered_json& arguments) {
  return {{"messages",
           {{{"role", "user"}, {"content", "Weather?"}},
            {{"role", "assistant"},
             {"content", nullptr},
             {"tool_calls",
              {{{"id", "call_0"}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", arguments}}}}}}},
            {{"role", "tool"}, {"tool_call_id", "call_0"}, {"content", "rain"}},
            {{"role", "assistant"}, {"content", "It rains."}}}}};
}

void use(ModelFolder& m, const std::string& setting) {
  m.chat_template = load_chat_template(m.dir().path(), setting);
}

}  // namespace

TEST_CASE("a template that raises: its message and the row; the system text is folded only where that is asked for") {
  ModelFolder m(
      "{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{%- for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Roles must alternate') }}{% endif %}" +
      kTurns.substr(kTurns.find("{{ '<|im_start|>")));
  const std::string twice = chat_row({{"user", "a"}, {"user", "b"}, {"assistant", "c"}});
  const std::string e = m.error(kRow + "\n" + kSystem);
  CHECK(contains(e, "d.jsonl:3: "));
  CHECK(contains(e, "System role not supported"));
  CHECK(contains(e, "name another one with chat_template"));
  CHECK(contains(m.error(kRow + twice), "d.jsonl:2: "));
  CHECK(contains(m.error(kRow + twice), "Roles must alternate"));
  // Left out when that is asked for, and counted; never rendered in another way.
  m.options.max_malformed_rows = 2;
  const Dataset d = m.read(kRow + kSystem + twice + kRow);
  CHECK(d.samples.size() == 2);
  CHECK(d.report.rows_malformed == 2);
  CHECK(contains(d.report.affected.at(0).what, "System role not supported"));
  m.options.max_malformed_rows = 0;
  use(m, "gemma");
  CHECK(contains(m.error(kSystem), "d.jsonl:1: "));
  CHECK(contains(m.error(kSystem), "no system turn"));
  use(m, "gemma3");  // this one has a place for it
  CHECK(contains(m.whole(m.read(kSystem).samples[0]), "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>"));
}

TEST_CASE("assistant turns with calls and null content, and tool turns, are kept; the calls are trained") {
  ModelFolder m;
  use(m, "chatml");
  const Dataset d = m.read(row_of(with_calls({{"city", "Rome"}})));
  REQUIRE(d.samples.size() == 1);
  CHECK(m.whole(d.samples[0]) ==
        "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"look\", \"arguments\": "
        "{\"city\": \"Rome\"}}\n</tool_call><|im_end|>\n<|im_start|>tool\n<tool_response>\nrain\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\nIt rains.<|im_end|>\n");
  CHECK(m.supervised(d, 0) ==
        "[<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call><|im_end|>\n]"
        "[It rains.<|im_end|>\n]");
  m.options.mask.roles_to_train = {"tool"};
  CHECK(contains(m.supervised(m.read(row_of(with_calls({{"city", "Rome"}}))), 0), "rain"));
}

TEST_CASE("arguments of calls as JSON text and as an object are the same samples, encoded once") {
  const std::string object =
      "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}"
      "{% for c in m.tool_calls or [] %}{{ '[CALLS]' + c.function.name + (c.function.arguments | tojson) }}{% endfor %}"
      "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  std::string text = object;
  const std::string filter = "(c.function.arguments | tojson)";
  text.replace(text.find(filter), filter.size(), "c.function.arguments");
  for (const std::string& source : {object, text}) {  // the second one takes text only
    ModelFolder m(source);
    for (const ordered_json& arguments :
         {ordered_json{{"city", "Rome"}, {"days", 3}}, ordered_json::object(),
          ordered_json{{"quoted", "say \"hi\"\n\\"}, {"list", {1, 2.5, nullptr, true}}, {"\u00fc", "\u4f60"}},
          ordered_json{{"z", 1}, {"a", {{"y", "{\"b\": 1}"}, {"x", "5"}}}}}) {
      CAPTURE(arguments.dump());
      const Dataset a = m.read(row_of(with_calls(arguments))), b = m.read(row_of(with_calls(arguments.dump())));
      CHECK(same_samples(a.samples, b.samples));
      const std::string said = m.supervised(a, 0);
      const size_t from = said.find("[CALLS]look") + 11, to = said.find("<|im_end|>");
      CHECK(ordered_json::parse(said.substr(from, to - from)) == arguments);
    }
  }
}

TEST_CASE("templates without tags: the answers and their ends, never nothing and never all") {
  const auto golden =
      ordered_json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "chat_mask_golden.json"));
  size_t families = 0;
  for (const auto& [name, source] : golden.at("templates").items()) {
    CAPTURE(name);
    const std::string own = source.at("own"), tagged = source.at("tagged");
    REQUIRE_FALSE(contains(own, "generation %}"));
    ModelFolder m(own), with_tags(tagged);
    const std::string rows =
        kRow + chat_row({{"user", "Hi"}, {"assistant", "Yo."}, {"user", "And?"}, {"assistant", "No more."}});
    const Dataset d = m.read(rows);
    REQUIRE(d.samples.size() == 2);
    for (const auto& s : d.samples) {
      CHECK(s.targets() > 0);
      CHECK(s.targets() < static_cast<int64_t>(s.ids.size()) - 2);
    }
    const std::string one = m.supervised(d, 0), two = m.supervised(d, 1);
    CHECK(contains(one, "The long one."));
    CHECK_FALSE(contains(one, "Which river"));
    CHECK(contains(two, "Yo."));
    CHECK(contains(two, "No more."));
    CHECK_FALSE(contains(two, "And?"));
    CHECK_FALSE(two.ends_with("No more.]"));  // what ends the turn is trained
    CHECK(same_samples(d.samples, with_tags.read(rows).samples));
    ++families;
  }
  CHECK(families == 8);
  // A template from which nothing can be told apart is refused, row by row.
  ModelFolder all("{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(contains(all.error(chat_row({{"assistant", "all of it"}})), "d.jsonl:1: every byte"));
  ModelFolder none("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  CHECK(contains(none.error(kRow), "d.jsonl:1: messages[1] (assistant): nothing of it is trained"));
}

TEST_CASE("white space at the end of every rendering is of no answer") {
  for (const std::string trailer : {" ", "\n\n", "{{ '\n' }}"}) {
    ModelFolder m(kTurns + trailer);
    const Dataset d =
        m.read(kRow + kSystem + chat_row({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d\n"}}));
    CHECK(m.supervised(d, 0) == "[The long one.<|im_end|>\n]");
    CHECK(m.supervised(d, 1) == "[Yo<|im_end|>\n]");
    CHECK(m.supervised(d, 2) == "[b<|im_end|>\n][d\n<|im_end|>\n]");
    m.spec.type = DatasetType::chat;
    const Dataset tools = m.read(R"({"tools": [{"type": "function", "function": {"name": "f"}}], "messages": )"
                                 R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
    CHECK(m.supervised(tools, 0) == "[b<|im_end|>\n]");
  }
}

TEST_CASE("a template that rewrites earlier turns: what it writes is what is trained") {
  const std::string source =
      "{%- set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 "
      "%}"
      "{% endif %}{% endfor %}{% for m in messages %}{% set c = m.content %}"
      "{% if m.role == 'assistant' and loop.index0 < ns.last and '</think>' in c %}"
      "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + c + "
      "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  ModelFolder m(source);
  const Dataset d = m.read(chat_row({{"user", "q"},
                                     {"assistant", "<think>\nwhy\n</think>\n\nso"},
                                     {"user", "r"},
                                     {"assistant", "<think>\nhow\n</think>\n\nthus"}}));
  CHECK(m.supervised(d, 0) == "[so<|im_end|>\n][<think>\nhow\n</think>\n\nthus<|im_end|>\n]");
}

TEST_CASE("an unknown feature or a fault of a template ends everything, with line and column; no other one is used") {
  ModelFolder m;
  const auto file = m.dir() / "chat_template.jinja";
  json config = vocabulary_config();
  config["chat_template"] = kTurns;  // it would do, and is not asked
  write_file(m.dir() / "tokenizer_config.json", config.dump());
  struct Fault {
    const char *source, *place, *what;
  };
  for (const Fault& f :
       {Fault{"a\n  {% include 'x' %}", ":2:6: ", "include"}, Fault{"{{ x | shuffle }}", ":1:8: ", "shuffle"},
        Fault{"{% for m in messages %}\n{{ m.content }}", ":1:4: ", ""}, Fault{"{{ 1 +", ":1:", ""},
        Fault{"{% if x is purple %}{% endif %}", ":1:12: ", "purple"}}) {
    CAPTURE(std::string(f.source));
    write_file(file, f.source);
    const std::string e = error_of([&] { load_chat_template(m.dir().path()); });
    CHECK(contains(e, "chat_template.jinja" + std::string(f.place)));
    CHECK(contains(e, f.what));
    write_file(m.dir() / "mine.jinja", f.source);
    CHECK(contains(error_of([&] { load_chat_template(m.dir().path(), m.dir() / "mine.jinja"); }), "mine.jinja"));
  }
  std::filesystem::remove(file);
  CHECK(load_chat_template(m.dir().path()) != nullptr);
  // One that is asked for and is not there is an error too, and chat rows without any are.
  CHECK(contains(error_of([&] { load_chat_template(m.dir().path(), "chatmi"); }, ErrorCode::usage),
                 "did you mean chatml"));
  m.chat_template = nullptr;
  CHECK(contains(m.error(kRow, ErrorCode::model), "the model has no chat template"));
}

TEST_CASE("prepared data are used again for the same input, and for no other") {
  ModelFolder m(kTurnsWithBos);
  TempDir cache;
  m.options.cache = cache.path();
  const auto prepared = [&](const std::string& content) {
    const Dataset d = m.read(content);
    CHECK(d.cache_problem.empty());
    auto fresh = m.options;
    fresh.cache.clear();
    const Dataset want = read_datasets({m.spec}, m.tokenizer, fresh, m.chat_template);
    CHECK(same_samples(d.samples, want.samples));
    CHECK(d.report == want.report);
    return d.from_cache;
  };
  const std::string rows = kRow + chat_row({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}});
  CHECK_FALSE(prepared(rows));
  CHECK(prepared(rows));
  m.options.num_threads = 3;
  CHECK(prepared(rows));
  // Each change alone, and back.
  const auto changed = [&](const char* what, const std::function<void()>& change, const std::function<void()>& back) {
    CAPTURE(std::string(what));
    change();
    CHECK_FALSE(prepared(rows));
    CHECK(prepared(rows));
    back();
    CHECK(prepared(rows));
  };
  std::string other = rows;
  other[other.find("river")] = 'R';
  CHECK_FALSE(prepared(other));
  CHECK_FALSE(prepared(rows + kRow));
  CHECK(prepared(rows));
  DataOptions& o = m.options;
  const DataOptions plain = o;
  const auto reset = [&] { o = plain; };
  changed(
      "max_seq_length", [&] { o.max_seq_length = 3000; }, reset);
  changed(
      "excess_length_strategy", [&] { o.excess_length_strategy = ExcessLength::truncate; }, reset);
  changed(
      "max_excess_fraction", [&] { o.max_excess_fraction = 0.5; }, reset);
  changed(
      "max_malformed_rows", [&] { o.max_malformed_rows = 1; }, reset);
  changed(
      "normalize_newlines", [&] { o.normalize_newlines = true; }, reset);
  changed(
      "train_on_inputs", [&] { o.mask.train_on_inputs = true; }, reset);
  changed(
      "train_on_eos", [&] { o.mask.train_on_eos = TrainOnEos::last; }, reset);
  changed(
      "roles_to_train",
      [&] {
        o.mask.roles_to_train = {"assistant", "user"};
      },
      reset);
  const DatasetSpec spec = m.spec;
  const auto respec = [&] { m.spec = spec; };
  changed(
      "type", [&] { m.spec.type = DatasetType::chat; }, respec);
  changed(
      "weight", [&] { m.spec.weight = 2; }, respec);
  changed(
      "sample_by", [&] { m.spec.sample_by = SampleBy::line; }, respec);
  const std::pair<std::string DatasetSpec::*, const char*> fields[] = {
      {&DatasetSpec::field_prompt, "q"},        {&DatasetSpec::field_completion, "a"},
      {&DatasetSpec::field_text, "t"},          {&DatasetSpec::field_instruction, "i"},
      {&DatasetSpec::field_input, "in"},        {&DatasetSpec::field_output, "out"},
      {&DatasetSpec::field_system, "s"},        {&DatasetSpec::field_messages, "messages"},
      {&DatasetSpec::field_role, "role"},       {&DatasetSpec::field_content, "content"},
      {&DatasetSpec::field_tools, "functions"}, {&DatasetSpec::field_train, "learn"},
      {&DatasetSpec::field_weight, "w"}};
  for (const auto& field : fields)
    changed(
        field.second, [&] { m.spec.*field.first = field.second; }, respec);
  changed(
      "roles",
      [&] {
        m.spec.roles = {{"bot", "assistant"}};
      },
      respec);
  // The template's text, its special tokens, and the vocabulary.
  const auto chat_template = m.chat_template;
  const auto tokenizer = m.tokenizer;
  const auto as_before = [&] { m.chat_template = chat_template, m.tokenizer = tokenizer; };
  const auto config = [&](const char* key, const json& value) {
    json j = vocabulary_config();
    j[key] = value;
    write_file(m.dir() / "tokenizer_config.json", j.dump());
  };
  write_file(m.dir() / "dated.jinja", "{{ strftime_now('%Y') }}" + kTurns);
  for (const char* today : {"2026-02-03", "2026-02-04"}) {
    changed(
        "date", [&] { m.chat_template = load_chat_template(m.dir().path(), m.dir() / "dated.jinja", today); },
        as_before);
  }
  changed(
      "template", [&] { m.chat_template = ModelFolder(kTurnsWithBos + " ").chat_template; }, as_before);
  changed(
      "bos_token",
      [&] {
        config("bos_token", "<|start|>");
        m.chat_template = load_chat_template(m.dir().path());
      },
      as_before);
  changed(
      "tokenizer_config.json",
      [&] {
        config("add_bos_token", false);
        m.tokenizer = load_tokenizer(m.dir().path());
      },
      as_before);
  changed(
      "tokenizer.json",
      [&] {
        json j = vocabulary_json();
        std::swap(j["model"]["merges"][0], j["model"]["merges"][1]);
        m.tokenizer = ModelFolder(kTurns, vocabulary_config(), j).tokenizer;
      },
      as_before);
}

TEST_CASE("what ends an answer: one control token, or its pieces where the vocabulary has none, or nothing") {
  ModelFolder m;
  const auto end_of = [&](const std::string& setting) {
    use(m, setting);
    return ChatEncoder(m.tokenizer, m.chat_template).end_of_turn();
  };
  const auto mine = [&](const std::string& source) {
    write_file(m.dir() / "mine.jinja", source);
    return end_of(m.dir() / "mine.jinja");
  };
  struct End {
    const char *name, *text, *token;  // token: null for pieces
  };
  for (const End& e :
       {End{"chatml", "<|im_end|>", "<|im_end|>"}, End{"llama3", "<|eot_id|>", nullptr}, End{"llama2", "</s>", "</s>"},
        End{"mistral", "</s>", "</s>"}, End{"gemma", "<end_of_turn>", nullptr}, End{"gemma3", "<end_of_turn>", nullptr},
        End{"phi3", "<|end|>\n</s>", "<|end|>"}, End{"zephyr", "</s>", "</s>"}, End{"alpaca", "</s>", "</s>"},
        End{"vicuna", "</s>", "</s>"}}) {
    CAPTURE(std::string(e.name));
    const auto end = end_of(e.name);
    REQUIRE(end);
    CHECK(end->text == e.text);
    if (e.token != nullptr) {
      CHECK(end->ids == std::vector<int32_t>{m.tokenizer->token_id(e.token)});
    } else {
      CHECK(end->ids.size() > 1);
      CHECK(m.tokenizer->decode(end->ids) == e.text);
    }
    // They are what training puts behind an answer.
    const Dataset d = m.read(kRow);
    std::vector<int32_t> trained;
    for (size_t i = 0; i < d.samples[0].ids.size(); ++i)
      if (d.samples[0].trained[i] != 0) trained.push_back(d.samples[0].ids[i]);
    CHECK(std::search(trained.begin(), trained.end(), end->ids.begin(), end->ids.end()) != trained.end());
  }
  CHECK(named_templates().size() == 10);
  // Without tags, without an end, with a system turn that must be there, and one that takes no conversation of ours.
  CHECK(mine(kTurns)->ids == std::vector<int32_t>{m.tokenizer->token_id("<|im_end|>")});
  const auto nothing = mine(
      "{% for m in messages %}{{ '\\n' + m.role + ': ' + m.content }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '\\nassistant: ' }}{% endif %}");
  REQUIRE(nothing);
  CHECK(nothing->text.empty());
  CHECK(nothing->ids.empty());
  CHECK(mine("{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" + kTurns)->ids.size() == 1);
  CHECK_FALSE(mine("{{ raise_exception('no') }}" + kTurns));
  // With masks of any kind.
  const ChatEncoder other(m.tokenizer, ModelFolder(kTurns).chat_template,
                          {.roles_to_train = {"user"}, .train_on_eos = TrainOnEos::none});
  CHECK(other.end_of_turn()->text == "<|im_end|>");
}
