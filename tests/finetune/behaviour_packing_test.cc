// SPDX-License-Identifier: Apache-2.0
// Rows in packs are what they are alone, and the order of an epoch depends on nothing but seed and epoch.
#include <doctest/doctest.h>

#include <set>

#include "behaviour_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

struct Expected {
  std::string row, supervised;
};

// Conversations of one to three answers, of many lengths.
std::vector<Expected> conversations(size_t n) {
  RandomText random(9);
  const std::vector<std::string> words = {" the", " river", " is",         " long",      " and",
                                          "\n",   " 12",    " \U0001F600", " <|im_end|>"};
  const auto text = [&](const std::string& start) {
    std::string out = start;
    for (uint32_t k = random.next() % 12; k > 0; --k) out += words[random.next() % words.size()];
    return out + ".";
  };
  std::vector<Expected> out;
  for (size_t i = 0; i < n; ++i) {
    Messages messages;
    std::string want;
    if (random.next() % 3 == 0) messages.emplace_back("system", text("S"));
    for (uint32_t k = 1 + random.next() % 3; k > 0; --k) {
      messages.emplace_back("user", text("Q" + std::to_string(i)));
      messages.emplace_back("assistant", text("A" + std::to_string(i)));
      want += "[" + messages.back().second + "<|im_end|>\n]";
    }
    out.push_back({chat_row(messages), want});
  }
  return out;
}

std::string joined(const std::vector<Expected>& rows) {
  std::string out;
  for (const Expected& row : rows) out += row.row;
  return out;
}

// By sample id: what is supervised of the row, and its tokens.
std::map<uint64_t, std::pair<std::string, std::vector<int32_t>>> rows_of(const ModelFolder& m, const SampleSet& samples,
                                                                         const EpochPlan& plan) {
  std::map<uint64_t, std::pair<std::string, std::vector<int32_t>>> out;
  for (int64_t i = 0; i < plan.micro_batches(); ++i) {
    const auto which = plan.micro_batch(i);
    const Batch b = make_batch(samples, {which.begin(), which.end()});
    const auto texts = m.supervised(b);
    for (size_t s = 0; s < texts.size(); ++s) {
      const auto from = static_cast<size_t>(b.cu_seqlens[s]), to = static_cast<size_t>(b.cu_seqlens[s + 1]);
      for (size_t k = from; k < to; ++k) CHECK(b.positions[k] == static_cast<int32_t>(k - from));
      CHECK(b.labels[to - 1] == kIgnoreLabel);  // no label reaches into the next row
      const std::vector<int32_t> ids(b.ids.begin() + static_cast<ptrdiff_t>(from),
                                     b.ids.begin() + static_cast<ptrdiff_t>(to));
      CHECK(out.emplace(b.sample_ids[s], std::pair(texts[s], ids)).second);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("packed and unpacked, the same tokens of each row are supervised: its answers, read back") {
  ModelFolder m;
  const auto rows = conversations(60);
  const Dataset d = m.read(joined(rows));
  REQUIRE(d.samples.size() == rows.size());
  const BatchOptions packed{.micro_batch_size = 2, .max_seq_length = d.report.longest_row, .sample_packing = true};
  BatchOptions apart = packed, single = packed;
  apart.sample_packing = single.sample_packing = false;
  single.micro_batch_size = 1;
  const EpochPlan packs = plan_epoch(d.samples, packed, 0);
  CHECK(packs.micro_batches() < 25);  // packs do hold several rows
  const auto a = rows_of(m, d.samples, packs), b = rows_of(m, d.samples, plan_epoch(d.samples, apart, 1)),
             c = rows_of(m, d.samples, plan_epoch(d.samples, single, 0)),
             e = rows_of(m, d.samples, plan_in_order(d.samples, packed));
  CHECK(a == b);
  CHECK(a == c);
  CHECK(a == e);
  REQUIRE(a.size() == rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(a.at(d.samples.id(i)).first == rows[i].supervised);
    CHECK(std::equal(d.samples[i].ids.begin(), d.samples[i].ids.end(), a.at(d.samples.id(i)).second.begin(),
                     a.at(d.samples.id(i)).second.end()));
  }
}

TEST_CASE("rows longer than a pack: left out, cut or refused with counts, and none is ever in two packs") {
  ModelFolder m;
  auto rows = conversations(40);
  for (const size_t at : {5, 17}) rows[at] = {chat_row({{"user", "Q"}, {"assistant", std::string(700, 'x')}}), {}};
  const std::string content = joined(rows);
  m.options.max_seq_length = 300;
  for (const auto strategy : {ExcessLength::drop, ExcessLength::truncate}) {
    m.options.excess_length_strategy = strategy;
    const Dataset d = m.read(content);
    const bool drop = strategy == ExcessLength::drop;
    CHECK(d.report.rows_too_long == 2);
    CHECK(d.report.rows_dropped == (drop ? 2 : 0));
    CHECK(d.report.rows_cut == (drop ? 0 : 2));
    CHECK(d.samples.size() == (drop ? 38 : 40));
    const EpochPlan plan = plan_epoch(d.samples, {.micro_batch_size = 1, .max_seq_length = 300}, 0);
    CHECK(plan.longest_micro_batch <= 300);
    CHECK(rows_of(m, d.samples, plan).size() == d.samples.size());  // each once, whole
  }
  m.options.excess_length_strategy = ExcessLength::raise;
  CHECK(contains(m.error(content), "d.jsonl:6: 2 of 40 rows are over max_seq_length 300"));
  // Samples that are longer than a pack never get that far.
  m.options.excess_length_strategy = ExcessLength::drop;
  m.options.max_seq_length = 4000;
  const Dataset all = m.read(content);
  CHECK_FALSE(
      error_of([&] { plan_epoch(all.samples, {.micro_batch_size = 1, .max_seq_length = 300}, 0); }, ErrorCode::internal)
          .empty());
}

TEST_CASE("samples, reports and the order of an epoch do not depend on the number of threads") {
  ModelFolder m;
  const auto rows = conversations(300);
  // Rows that are cut, dropped and left out as well.
  std::string content;
  for (size_t i = 0; i < rows.size(); ++i) {
    content += rows[i].row;
    if (i % 50 == 20) content += "{\"messages\": [}\n\n";
    if (i % 60 == 7) content += chat_row({{"user", std::string(300, 'q')}, {"assistant", "late"}});
  }
  m.options.max_seq_length = 150;
  m.options.max_malformed_rows = 10;
  m.options.excess_length_strategy = ExcessLength::truncate;
  m.options.num_threads = 1;
  const Dataset one = m.read(content);
  CHECK(one.report.rows_malformed == 6);
  CHECK(one.report.rows_cut > 0);
  CHECK(one.report.rows_without_target > 0);
  const BatchOptions batches{.micro_batch_size = 2, .gradient_accumulation_steps = 3, .max_seq_length = 150, .seed = 5};
  const EpochPlan plan = plan_epoch(one.samples, batches, 2);
  for (const int threads : {1, 2, 3, 16}) {
    CAPTURE(threads);
    m.options.num_threads = threads;
    for (int again = 0; again < 2; ++again) {
      const Dataset d = m.read(content);
      CHECK(same_samples(d.samples, one.samples));
      CHECK(d.samples.hash() == one.samples.hash());
      CHECK(d.report == one.report);
      CHECK(d.report.to_json() == one.report.to_json());
      CHECK(plan_epoch(d.samples, batches, 2) == plan);
    }
    m.options.max_malformed_rows = 2;
    CHECK(contains(m.error(content), "d.jsonl:"));
    const std::string e = m.error(content);
    m.options.num_threads = 1;
    CHECK(m.error(content) == e);  // the same row is told
    m.options.max_malformed_rows = 10;
  }
  BatchOptions other = batches;
  other.seed = 6;
  CHECK_FALSE(plan_epoch(one.samples, other, 2) == plan);
  CHECK_FALSE(plan_epoch(one.samples, batches, 3) == plan);
}
