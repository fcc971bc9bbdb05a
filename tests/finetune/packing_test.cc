// SPDX-License-Identifier: Apache-2.0
// Packs: each row once, none over capacity, as tight as best-fit decreasing, in an order of seed and epoch; weights.
#include "finetune/data/packing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "finetune/data/batch.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::vector<Sample> samples_of(const std::vector<int32_t>& lengths, uint64_t source = 0) {
  std::vector<Sample> out;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Sample& s = out.emplace_back();
    s.id = source << 56 | (i + 1) << 24;
    s.ids.assign(static_cast<size_t>(lengths[i]), static_cast<int32_t>(i));
    s.trained.assign(s.ids.size(), 1);
    s.trained[0] = 0;
  }
  return out;
}

// Few long ones among many short ones, some of every length.
std::vector<int32_t> random_lengths(size_t n, int32_t longest, uint64_t seed) {
  RandomText random(seed);
  std::vector<int32_t> out(n);
  for (auto& l : out) {
    const auto x = static_cast<int32_t>(random.next() % static_cast<uint32_t>(longest));
    l = 1 + (random.next() % 4 ? x / 6 : x);
  }
  return out;
}

std::vector<int64_t> fills_of(const std::vector<int32_t>& rows, const std::vector<int64_t>& starts,
                              const std::vector<int32_t>& lengths) {
  std::vector<int64_t> out;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    int64_t sum = 0;
    for (int64_t k = starts[i]; k < starts[i + 1]; ++k)
      sum += lengths[static_cast<size_t>(rows[static_cast<size_t>(k)])];
    out.push_back(sum);
  }
  return out;
}

// Row by row, looking at every pack.
std::vector<int64_t> plain_best_fit_decreasing(std::vector<int32_t> lengths, int64_t capacity) {
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<int64_t> fills;
  for (const int32_t n : lengths) {
    int64_t* best = nullptr;
    for (int64_t& f : fills)
      if (f + n <= capacity && (!best || f > *best)) best = &f;
    if (!best) best = &fills.emplace_back(0);
    *best += n;
  }
  return fills;
}

std::map<int32_t, int> visits_of(const EpochPlan& p) {
  std::map<int32_t, int> out;
  for (const int32_t i : p.order) ++out[i];
  return out;
}

uint64_t fingerprint(const EpochPlan& p) {
  uint64_t h = fnv1a(p.order.data(), p.order.size() * sizeof p.order[0]);
  h = fnv1a(p.micro_starts.data(), p.micro_starts.size() * sizeof p.micro_starts[0], h);
  return fnv1a(p.step_starts.data(), p.step_starts.size() * sizeof p.step_starts[0], h);
}

}  // namespace

TEST_CASE("every row in one pack, none over capacity, as few as best-fit decreasing makes") {
  for (const int32_t longest : {1, 2, 7, 50, 1000}) {
    for (const size_t n : {1, 2, 3, 10, 100, 1500}) {
      for (const int64_t times : {1, 2, 5}) {
        const int64_t capacity = longest * times;
        const auto lengths = random_lengths(n, longest, n + static_cast<uint64_t>(capacity));
        std::vector<int32_t> rows(n);
        std::iota(rows.begin(), rows.end(), 0);
        SplitMix64 random(n);
        shuffle(rows, random);
        const auto starts = pack_rows(rows, lengths, capacity, &random);
        REQUIRE(starts.front() == 0);
        REQUIRE(starts.back() == static_cast<int64_t>(n));
        CHECK(std::is_sorted(starts.begin(), starts.end(), std::less_equal<>()));  // none is empty
        const auto fills = fills_of(rows, starts, lengths);
        CHECK(*std::max_element(fills.begin(), fills.end()) <= capacity);
        CHECK(fills.size() <= plain_best_fit_decreasing(lengths, capacity).size() * 1001 / 1000);
        std::sort(rows.begin(), rows.end());
        for (size_t i = 0; i < n; ++i) REQUIRE(rows[i] == static_cast<int32_t>(i));
      }
    }
  }
}

TEST_CASE("rows that fill packs exactly leave no room; rows over half a pack stand alone; edges of the capacity") {
  const auto packs = [](const std::vector<int32_t>& lengths, int64_t capacity) {
    std::vector<int32_t> rows(lengths.size());
    std::iota(rows.begin(), rows.end(), 0);
    return fills_of(rows, pack_rows(rows, lengths, capacity, nullptr), lengths);
  };
  CHECK(packs({6, 5, 4, 3, 2, 1, 10, 9}, 10) == std::vector<int64_t>{10, 10, 10, 10});
  CHECK(packs({35, 35, 30, 35, 35, 30}, 100) == std::vector<int64_t>{100, 100});  // dealt out they need three
  CHECK(packs({6, 6, 6}, 10) == std::vector<int64_t>{6, 6, 6});
  CHECK(packs({10, 10}, 10) == std::vector<int64_t>{10, 10});
  CHECK(packs({1, 1, 1}, 1) == std::vector<int64_t>{1, 1, 1});
  CHECK(packs({1, 1, 1}, int64_t{1} << 31) == std::vector<int64_t>{3});
  CHECK(packs({}, 10).empty());
  CHECK(contains(error_of([&] { packs({11}, 10); }, ErrorCode::internal), "a row of 11 tokens for packs of 10"));
}

TEST_CASE("in order: packs follow their first rows, rows in a pack are in order, a row may come twice") {
  const std::vector<int32_t> lengths{5, 2, 3, 5, 4, 1};
  std::vector<int32_t> rows{0, 1, 2, 3, 4, 5, 5};
  const auto starts = pack_rows(rows, lengths, 10, nullptr);
  CHECK(starts == std::vector<int64_t>{0, 2, 4, 7});
  CHECK(rows == std::vector<int32_t>{0, 1, 2, 4, 3, 5, 5});
}

TEST_CASE("all epochs have the same number of packs and the same longest; their order differs") {
  const SampleSet set(samples_of(random_lengths(400, 64, 5)));
  const BatchOptions o{.micro_batch_size = 2, .gradient_accumulation_steps = 3, .max_seq_length = 64};
  const EpochShape shape = epoch_shape(set, o, 0);
  CHECK(shape.every_epoch_alike);
  std::set<std::vector<int32_t>> orders;
  for (const int64_t epoch : {0, 1, 2, 7}) {
    const EpochPlan p = plan_epoch(set, o, epoch);
    CHECK(p.micro_batches() == shape.micro_batches);
    CHECK(p.longest_micro_batch == shape.longest_micro_batch);
    CHECK(p.steps() == shape.steps);
    orders.insert(p.order);
  }
  CHECK(orders.size() == 4);
  CHECK(plan_in_order(set, o).micro_batches() == shape.micro_batches);
}

TEST_CASE("the shape of an epoch is that of its plan, packed or not, with weights or without") {
  auto samples = samples_of(random_lengths(101, 40, 1), 0);
  for (Sample& s : samples_of(random_lengths(37, 40, 2), 1)) samples.push_back(s);
  const SampleSet set(samples);
  for (const bool packing : {true, false}) {
    for (const int64_t micro : {1, 3}) {
      for (const std::vector<double>& weights : {std::vector<double>{}, {1, 1}, {2, 1}, {0.3, 2.5}, {0.001, 1}}) {
        const BatchOptions o{.micro_batch_size = micro,
                             .gradient_accumulation_steps = 4,
                             .max_seq_length = 40,
                             .sample_packing = packing};
        const EpochShape first = epoch_shape(set, o, 0, weights);
        for (const int64_t epoch : {0, 1, 5}) {
          const EpochShape s = epoch_shape(set, o, epoch, weights);
          const EpochPlan p = plan_epoch(set, o, epoch, weights);
          int64_t tokens = 0;
          for (const int32_t i : p.order) tokens += set.length(static_cast<size_t>(i));
          CHECK(s.rows == static_cast<int64_t>(p.order.size()));
          CHECK(s.rows == first.rows);
          CHECK(s.tokens == tokens);
          CHECK(s.micro_batches == p.micro_batches());
          CHECK(s.steps == p.steps());
          CHECK(s.longest_micro_batch == p.longest_micro_batch);
          if (first.every_epoch_alike) {
            CHECK(s.micro_batches == first.micro_batches);
            CHECK(s.longest_micro_batch == first.longest_micro_batch);
          }
        }
      }
    }
  }
}

TEST_CASE("no curriculum: long and short rows, full and partly filled packs lie all over the epoch") {
  const auto lengths = random_lengths(4000, 500, 9);
  const SampleSet set(samples_of(lengths));
  const double mean = static_cast<double>(set.tokens()) / static_cast<double>(set.size());
  for (const int64_t micro : {1, 4}) {
    const BatchOptions o{.micro_batch_size = micro, .gradient_accumulation_steps = 1, .max_seq_length = 500};
    const EpochPlan p = plan_epoch(set, o, 1);
    for (int part = 0; part < 4; ++part) {  // each quarter of the packs has rows of about the mean length
      double sum = 0;
      int64_t rows = 0;
      for (int64_t m = p.micro_batches() * part / 4; m < p.micro_batches() * (part + 1) / 4; ++m)
        for (const int32_t i : p.micro_batch(m)) sum += lengths[static_cast<size_t>(i)], ++rows;
      CHECK(sum / static_cast<double>(rows) == doctest::Approx(mean).epsilon(0.1));
    }
  }
}

TEST_CASE("packs are of mixed lengths where that costs none, also when several of the longest would fit into one") {
  const auto lengths = random_lengths(3000, 256, 4);
  const SampleSet set(samples_of(lengths));
  double mean = 0, squares = 0, between = 0;
  for (const int32_t n : lengths) mean += n / 3000.0;
  for (const int32_t n : lengths) squares += (n - mean) * (n - mean);
  const EpochPlan p = plan_epoch(set, {.micro_batch_size = 4, .max_seq_length = 256}, 0);
  for (int64_t m = 0; m < p.micro_batches(); ++m) {
    double sum = 0;
    const auto pack = p.micro_batch(m);
    for (const int32_t i : pack) sum += lengths[static_cast<size_t>(i)] - mean;
    between += sum * sum / static_cast<double>(pack.size());
  }
  CHECK(between < 0.15 * squares);  // best-fit decreasing: 0.8
}

TEST_CASE("two rows of one length change places from epoch to epoch: company is random") {
  std::vector<int32_t> lengths(40, 30);
  lengths.resize(80, 20);  // every pack: one of 30, one of 20
  const SampleSet set(samples_of(lengths));
  const BatchOptions o{.micro_batch_size = 1, .gradient_accumulation_steps = 1, .max_seq_length = 50};
  std::set<int32_t> partners;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const EpochPlan p = plan_epoch(set, o, epoch);
    REQUIRE(p.micro_batches() == 40);
    for (int64_t m = 0; m < 40; ++m) {
      const auto pack = p.micro_batch(m);
      REQUIRE(pack.size() == 2);
      if (std::find(pack.begin(), pack.end(), 0) != pack.end()) partners.insert(pack[0] == 0 ? pack[1] : pack[0]);
    }
  }
  CHECK(partners.size() > 10);
}

TEST_CASE("weights: 2 is twice, 0.5 half of the rows and the others in the next epoch, 2.5 both") {
  auto samples = samples_of(random_lengths(50, 20, 1), 0);
  for (Sample& s : samples_of(random_lengths(40, 20, 2), 1)) samples.push_back(s);
  for (Sample& s : samples_of(random_lengths(20, 20, 3), 2)) samples.push_back(s);
  const SampleSet set(samples);
  const std::vector<double> weights{2, 0.5, 2.5};
  for (const bool packing : {true, false}) {
    const BatchOptions o{
        .micro_batch_size = 2, .gradient_accumulation_steps = 2, .max_seq_length = 20, .sample_packing = packing};
    std::map<int32_t, int> both;
    for (const int64_t epoch : {0, 1}) {
      const auto visits = visits_of(plan_epoch(set, o, epoch, weights));
      for (int32_t i = 0; i < 50; ++i) CHECK(visits.at(i) == 2);
      int half = 0;
      for (int32_t i = 50; i < 90; ++i) {
        const int n = visits.count(i) ? visits.at(i) : 0;
        CHECK(n <= 1);
        half += n;
      }
      CHECK(half == 20);
      for (int32_t i = 90; i < 110; ++i) CHECK((visits.at(i) == 2 || visits.at(i) == 3));
      CHECK(plan_epoch(set, o, epoch, weights) == plan_epoch(set, o, epoch, weights));
      for (const auto& [i, n] : visits) both[i] += n;
    }
    for (int32_t i = 50; i < 90; ++i) CHECK(both.at(i) == 1);
    for (int32_t i = 90; i < 110; ++i) CHECK(both.at(i) == 5);
    CHECK(plan_epoch(set, o, 2, std::vector<double>{1, 1, 1}) == plan_epoch(set, o, 2));
    BatchOptions other = o;
    other.seed = 7;
    CHECK(visits_of(plan_epoch(set, other, 0, weights)) != visits_of(plan_epoch(set, o, 0, weights)));
  }
}

TEST_CASE("weights: all rows come equally often over the epochs, whatever the fraction; at least one comes") {
  const SampleSet set(samples_of(random_lengths(7, 20, 1)));
  const BatchOptions o{.micro_batch_size = 1, .gradient_accumulation_steps = 1, .max_seq_length = 20};
  for (const double w : {0.001, 0.3, 0.5, 0.9, 1.6, 3.2}) {
    const auto per_epoch = std::max<int64_t>(1, std::llround(w * 7));
    std::map<int32_t, int> all;
    for (int64_t epoch = 0; epoch < 21; ++epoch) {
      const EpochPlan p = plan_epoch(set, o, epoch, std::vector<double>{w});
      CHECK(static_cast<int64_t>(p.order.size()) == per_epoch);
      for (const auto& [i, n] : visits_of(p)) all[i] += n;
    }
    for (int32_t i = 0; i < 7; ++i) CHECK(all.at(i) == 3 * per_epoch);
  }
  // Far epochs do not overflow.
  CHECK(plan_epoch(set, o, int64_t{1} << 60, std::vector<double>{0.5}).order.size() == 4);
  const auto error = [&](double w) {
    return error_of([&] { plan_epoch(set, o, 0, std::vector<double>{w}); }, ErrorCode::usage);
  };
  CHECK(contains(error(0), "dataset 1: weight 0"));
  CHECK(contains(error(-1), "weight -1"));
  CHECK(contains(error(NAN), "weight nan"));
  CHECK(contains(error(1e9), "at most 2,147,483,647 visits"));
  const SampleSet second(samples_of({3}, 1));
  CHECK(contains(error_of([&] { plan_epoch(second, o, 0, std::vector<double>{2}); }, ErrorCode::internal),
                 "source 1 of 1"));
  CHECK(plan_epoch(second, o, 0, std::vector<double>{0.5, 3}).order.size() == 3);  // a source without rows is none
}

TEST_CASE("statistics: fill and padding by hand") {
  const SampleSet set(samples_of({6, 4, 10, 5, 5}));
  const BatchOptions o{.micro_batch_size = 1, .max_seq_length = 10};
  PackingStats s = packing_stats(set, o);
  CHECK(s.rows == 5);
  CHECK(s.tokens == 30);
  CHECK(s.packs == 3);
  CHECK(s.fill == 1);
  CHECK(s.padding_without_packing == 0);  // a batch of one row has no longer one
  CHECK(s.padding_of_slots == doctest::Approx(0.4));
  CHECK(s.saved == 1);
  const SampleSet loose(samples_of({6, 6, 6}));
  s = packing_stats(loose, o);
  CHECK(s.packs == 3);
  CHECK(s.fill == doctest::Approx(0.6));
  CHECK(s.saved == doctest::Approx(0));
  const SampleSet two(samples_of({2, 10}));
  s = packing_stats(two, {.micro_batch_size = 2, .max_seq_length = 10, .sample_packing = false});
  CHECK(s.packs == 1);
  CHECK(s.fill == doctest::Approx(0.6));
  CHECK(s.padding_without_packing == doctest::Approx(0.4));
  CHECK(packing_stats({}, o).packs == 0);
  CHECK(packing_stats(set, o, std::vector<double>{2}).tokens == 60);
}

TEST_CASE("the order of an epoch is the same in every build") {
  auto samples = samples_of(random_lengths(300, 100, 1), 0);
  for (Sample& s : samples_of(random_lengths(200, 100, 2), 1)) samples.push_back(s);
  const SampleSet set(samples);
  const BatchOptions packed{.micro_batch_size = 2, .gradient_accumulation_steps = 4, .max_seq_length = 100};
  BatchOptions rows = packed;
  rows.sample_packing = false;
  const std::vector<double> weights{0.7, 1.5};
  CHECK(hex64(fingerprint(plan_epoch(set, packed, 0))) == "1d1a935857f2c1cc");
  CHECK(hex64(fingerprint(plan_epoch(set, packed, 3))) == "01f39b34c7c0c9cc");
  CHECK(hex64(fingerprint(plan_in_order(set, packed))) == "800182ed7ab344f9");
  CHECK(hex64(fingerprint(plan_epoch(set, rows, 0))) == "dffb782531eb1caa");
  CHECK(hex64(fingerprint(plan_epoch(set, rows, 3))) == "e4d683c69f47a82a");
  CHECK(hex64(fingerprint(plan_epoch(set, packed, 3, weights))) == "59d2ae2ba0623a24");
  CHECK(hex64(fingerprint(plan_epoch(set, rows, 3, weights))) == "3f4e3fdd8d75ee73");
}
