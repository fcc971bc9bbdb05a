// SPDX-License-Identifier: Apache-2.0
// Epoch plans and batches: every sample once, within capacity, in an order that seed and epoch alone decide.
#include <doctest/doctest.h>

#include <algorithm>

#include "finetune/data/batch.h"
#include "finetune/data/shuffle.h"
#include "kernels/cross_entropy.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::vector<Sample> samples_of(const std::vector<size_t>& lengths) {
  std::vector<Sample> out;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Sample s;
    s.id = 1000 + i;
    for (size_t k = 0; k < lengths[i]; ++k) {
      s.ids.push_back(static_cast<int32_t>(100 * i + k));
      s.trained.push_back(k > 0 && (k + i) % 3 != 0 ? 1 : 0);
    }
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<Sample> many(size_t n, size_t longest) {
  RandomText random(n);
  std::vector<size_t> lengths(n);
  for (auto& l : lengths) l = 1 + random.next() % longest;
  return samples_of(lengths);
}

std::vector<std::vector<std::vector<int32_t>>> steps_of(const EpochPlan& plan) {
  std::vector<std::vector<std::vector<int32_t>>> out;
  for (int64_t i = 0; i < plan.steps(); ++i) out.push_back(plan.step(i));
  return out;
}

}  // namespace

TEST_CASE("every sample once, within capacity, windows full but the last") {
  for (const bool packing : {true, false}) {
    for (const int64_t rows : {1, 3, 8}) {
      for (const int64_t window : {1, 4}) {
        const auto samples = many(211, 64);
        const BatchOptions o{.micro_batch_size = rows,
                             .gradient_accumulation_steps = window,
                             .max_seq_length = 64,
                             .sample_packing = packing};
        for (const auto& plan : {plan_epoch(samples, o, 0), plan_epoch(samples, o, 5), plan_in_order(samples, o)}) {
          auto order = plan.order;
          const auto steps = steps_of(plan);
          std::sort(order.begin(), order.end());
          REQUIRE(order.size() == samples.size());
          for (size_t i = 0; i < order.size(); ++i) CHECK(order[i] == static_cast<int32_t>(i));
          int64_t longest = 0;
          for (size_t s = 0; s < steps.size(); ++s) {
            CHECK((steps[s].size() == static_cast<size_t>(window) || s + 1 == steps.size()));
            CHECK_FALSE(steps[s].empty());
            for (const auto& micro : steps[s]) {
              CHECK_FALSE(micro.empty());
              int64_t tokens = 0;
              for (const int32_t i : micro) tokens += static_cast<int64_t>(samples[static_cast<size_t>(i)].ids.size());
              CHECK(tokens <= rows * 64);
              if (!packing) CHECK(micro.size() <= static_cast<size_t>(rows));
              longest = std::max(longest, tokens);
            }
          }
          CHECK(plan.longest_micro_batch == longest);
        }
      }
    }
  }
}

TEST_CASE("order is a function of seed and epoch") {
  const auto samples = many(100, 20);
  BatchOptions o{.micro_batch_size = 1, .gradient_accumulation_steps = 4, .max_seq_length = 20};
  const auto first = plan_epoch(samples, o, 0).order;
  CHECK(first == plan_epoch(samples, o, 0).order);
  CHECK(first != plan_epoch(samples, o, 1).order);
  CHECK(first != plan_in_order(samples, o).order);
  o.seed = 43;
  CHECK(first != plan_epoch(samples, o, 0).order);
}

TEST_CASE("longest_batch_first: the worst case opens the run, and nothing else moves") {
  for (const bool packing : {true, false}) {
    const auto samples = many(60, 20);
    BatchOptions o{
        .micro_batch_size = 2, .gradient_accumulation_steps = 3, .max_seq_length = 20, .sample_packing = packing};
    const auto tokens = [&](const std::vector<int32_t>& micro) {
      size_t n = 0;
      for (const int32_t i : micro) n += samples[static_cast<size_t>(i)].ids.size();
      return static_cast<int64_t>(n);
    };
    const EpochPlan with = plan_epoch(samples, o, 0);
    const auto with_steps = steps_of(with);
    CHECK(tokens(with_steps[0][0]) == with.longest_micro_batch);
    o.longest_batch_first = false;
    const EpochPlan without = plan_epoch(samples, o, 0);
    CHECK(with.longest_micro_batch == without.longest_micro_batch);
    // The same steps with the same micro-batches; the others in their order.
    auto rest = steps_of(without);
    REQUIRE(with_steps.size() == rest.size());
    const auto moved = std::find_if(rest.begin(), rest.end(), [&](const auto& step) {
      return std::is_permutation(step.begin(), step.end(), with_steps[0].begin(), with_steps[0].end());
    });
    REQUIRE(moved != rest.end());
    rest.erase(moved);
    CHECK(std::equal(rest.begin(), rest.end(), with_steps.begin() + 1));
    o.longest_batch_first = true;
    const EpochPlan later = plan_epoch(samples, o, 3);
    o.longest_batch_first = false;
    CHECK(later == plan_epoch(samples, o, 3));  // the first epoch only
  }
  CHECK(plan_epoch({}, {}, 0).steps() == 0);
}

TEST_CASE("the generator is SplitMix64 with its published values, draws are in range and even") {
  SplitMix64 random(1234567);
  CHECK(random.next() == 6457827717110365317ull);
  CHECK(random.next() == 3203168211198807973ull);
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 7000; ++i) ++counts[random.below(7)];
  for (const int c : counts) CHECK(std::abs(c - 1000) < 150);
}

TEST_CASE("labels are the next token of the same sample, where it is trained") {
  const auto samples = samples_of({4, 3, 1});
  const Batch b = make_batch(samples, {1, 0, 2});
  CHECK(b.ids == std::vector<int32_t>{100, 101, 102, 0, 1, 2, 3, 200});
  // Trained: sample 1 token 1 only (1 + 1, not 2 + 1 = 3), sample 0 tokens 1 and 2.
  CHECK(b.labels ==
        std::vector<int32_t>{101, kIgnoreLabel, kIgnoreLabel, 1, 2, kIgnoreLabel, kIgnoreLabel, kIgnoreLabel});
  CHECK(b.weights == std::vector<float>{1, 0, 0, 1, 1, 0, 0, 0});
  CHECK(b.positions == std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3, 0});
  CHECK(b.cu_seqlens == std::vector<int32_t>{0, 3, 7, 8});
  CHECK(b.sample_ids == std::vector<uint64_t>{1001, 1000, 1002});
  CHECK(b.tokens() == 8);
  CHECK(b.total_weight() == 3);
}

TEST_CASE("weights are those of the labels; without any they are 1") {
  const std::vector<Sample> samples{{1, {10, 11, 12, 13}, {0, 1, 0, 1}, {9, 0.5f, 9, 2}}, {2, {20, 21}, {0, 1}, {}}};
  const StepBatch step = make_step(samples, {{0, 1}, {0}});
  CHECK(step.micro[0].weights == std::vector<float>{0.5f, 0, 2, 0, 1, 0});
  CHECK(step.micro[0].labels == std::vector<int32_t>{11, kIgnoreLabel, 13, kIgnoreLabel, 21, kIgnoreLabel});
  CHECK(step.micro[0].total_weight() == 3.5);
  CHECK(step.total_weight == 6);
}

TEST_CASE("every row of every pack is what it is alone: tokens, labels, weights, positions from 0") {
  auto samples = many(150, 40);
  for (size_t i = 0; i < samples.size(); i += 3) samples[i].weights.assign(samples[i].ids.size(), 1.5f);
  const SampleSet set(samples);
  const BatchOptions o{.micro_batch_size = 2, .gradient_accumulation_steps = 4, .max_seq_length = 40};
  for (const EpochPlan& plan : {plan_epoch(set, o, 0), plan_epoch(set, o, 1), plan_in_order(set, o)}) {
    size_t rows = 0;
    for (int64_t s = 0; s < plan.steps(); ++s) {
      for (const auto& micro : plan.step(s)) {
        const Batch b = make_batch(set, micro);
        REQUIRE(b.cu_seqlens.size() == micro.size() + 1);
        CHECK(b.tokens() == b.cu_seqlens.back());
        for (size_t r = 0; r < micro.size(); ++r, ++rows) {
          const Batch alone = make_batch(set, {micro[r]});
          const auto from = b.cu_seqlens[r], to = b.cu_seqlens[r + 1];
          const auto part = [&](const auto& list) {
            return std::remove_cvref_t<decltype(list)>(list.begin() + from, list.begin() + to);
          };
          CHECK(part(b.ids) == alone.ids);
          CHECK(part(b.labels) == alone.labels);
          CHECK(part(b.weights) == alone.weights);
          CHECK(part(b.positions) == alone.positions);
          CHECK(b.sample_ids[r] == samples[static_cast<size_t>(micro[r])].id);
        }
      }
    }
    CHECK(rows == samples.size());
  }
}

TEST_CASE("batch 8 x 1 and 1 x 8 have the same targets and weight") {
  const auto samples = many(8, 30);
  const BatchOptions wide{
      .micro_batch_size = 8, .gradient_accumulation_steps = 1, .max_seq_length = 30, .sample_packing = false};
  const BatchOptions deep{
      .micro_batch_size = 1, .gradient_accumulation_steps = 8, .max_seq_length = 30, .sample_packing = false};
  const auto a = plan_epoch(samples, wide, 2), b = plan_epoch(samples, deep, 2);
  REQUIRE(a.steps() == 1);
  REQUIRE(b.steps() == 1);
  const StepBatch x = make_step(samples, a.step(0)), y = make_step(samples, b.step(0));
  CHECK(x.micro.size() == 1);
  CHECK(y.micro.size() == 8);
  CHECK(x.total_weight == y.total_weight);
  double targets = 0;
  for (const auto& s : samples) targets += static_cast<double>(s.targets());
  CHECK(x.total_weight == targets);
  std::vector<int32_t> labels;
  for (const auto& m : y.micro) labels.insert(labels.end(), m.labels.begin(), m.labels.end());
  CHECK(labels == x.micro[0].labels);
}

TEST_CASE("5 micro-batches in windows of 2 are 3 steps, 3 in windows of 4 are one") {
  const auto five = samples_of({4, 4, 4, 4, 4}), three = samples_of({4, 4, 4});
  CHECK(plan_epoch(five, {.micro_batch_size = 1, .gradient_accumulation_steps = 2, .max_seq_length = 4}, 0).steps() ==
        3);
  CHECK(plan_epoch(three, {.micro_batch_size = 1, .gradient_accumulation_steps = 4, .max_seq_length = 4}, 0).steps() ==
        1);
  CHECK(plan_epoch({}, {}, 0).steps() == 0);
}

TEST_CASE("what cannot be planned or batched") {
  const auto samples = samples_of({4});
  CHECK(contains(error_of([&] { plan_epoch(samples, {.max_seq_length = 3}, 0); }, ErrorCode::internal), "sample 1000"));
  CHECK(contains(error_of([&] { plan_epoch(samples, {.micro_batch_size = 0}, 0); }, ErrorCode::usage),
                 "micro_batch_size 0"));
  CHECK(contains(error_of([&] { plan_epoch(samples, {.micro_batch_size = 1 << 20, .max_seq_length = 1 << 20}, 0); },
                          ErrorCode::usage),
                 "tokens in a micro-batch"));
  CHECK(contains(error_of([&] { make_batch(samples, {1}); }, ErrorCode::internal), "sample 1 of 1"));
  CHECK(contains(error_of([&] { make_batch(samples, {-1}); }, ErrorCode::internal), "sample -1"));
}
