// SPDX-License-Identifier: Apache-2.0
// The fastest persistent schedule of a chain within a budget: the dynamic programme of Herrmann, Beaumont et al.
// ("Optimal checkpointing for heterogeneous chains", arXiv 1911.13214) with several save options per stage, under the
// memory rules of chain.h. One run answers every budget up to the one it was made for.
//
// C(m, i, j): least seconds of forward and backward of stages i .. j with m bytes, where input[i] is there already (not
// counted) and the gradient d = d_input[j + 1] is live all along (counted). Either
//   i == j: backward(i) from its input alone;
//   or the input of a later stage p is computed and kept, p .. j done, then i .. p - 1 again from input[i]:
//       forward(i .. p - 1) + C(m - input[p], p, j) + C(m, i, p - 1);
//   or stage i is kept with option k until its backward:
//       save(i, k) + C(m - kept - input[i + 1], i + 1, j) + backward(i).
// Where stage i's input may lie in host memory, each of the last two also with it there: the middle C has input[i]
// bytes more, but its last op, a backward, has not, and takes no less time than the copy back. So C has one value more
// for each kind of input (its bytes and its copy's seconds) that may be on its way during the last op.
#pragma once
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "chain.h"

namespace bantam {

struct ChainPlan {
  std::vector<ChainOp> ops;
  size_t peak = 0;     ///< as simulated
  double seconds = 0;  ///< as simulated
};

class ChainPlanner {
 public:
  /// Bytes are counted in slots of max_budget / slots, each size rounded up; slots 0: by the length of the chain.
  /// A slot of one byte (slots >= max_budget) is exact. Identical stages are planned once.
  ChainPlanner(const Chain& chain, size_t max_budget, size_t slots = 0);

  /// The fastest schedule whose peak is at most `budget` (<= max_budget; the first input counts). What rounding to
  /// slots left over is spent on better options, stage by stage. Empty: none is known.
  std::optional<ChainPlan> plan(size_t budget) const;
  /// Least budget for which plan() finds a schedule; max_budget + 1: none.
  size_t least_budget() const;
  /// The programme's own value for a budget, in seconds; infinity: does not fit.
  double seconds(size_t budget) const;

 private:
  int64_t slots_of(size_t bytes) const { return static_cast<int64_t>((bytes + slot_ - 1) / slot_); }
  size_t gradient_after(int j) const;
  int kind(int i, int j) const { return kinds_[static_cast<size_t>(i)][static_cast<size_t>(j - i)]; }
  /// An input that comes back during the last op of an interval.
  struct Load {
    size_t bytes = 0;
    double seconds = 0;
    bool operator==(const Load&) const = default;
  };
  const float* row(int i, int j, int load) const {
    return values_.data() +
           (static_cast<size_t>(kind(i, j)) * loads_.size() + static_cast<size_t>(load)) * static_cast<size_t>(width_);
  }
  float value(int i, int j, int load, int64_t m) const { return row(i, j, load)[std::min(m, width_ - 1)]; }
  void number_intervals();
  void number_loads();
  template <class Segment, class Save>
  void for_each_choice(int i, int j, int load, Segment segment, Save save) const;
  void solve(int i, int j, int load, float* out) const;
  void emit(int64_t m, int i, int j, int load, std::vector<ChainOp>& ops) const;
  void refine(size_t budget, ChainPlan& plan) const;

  Chain chain_;
  size_t slot_ = 1;
  int64_t width_ = 0;                    // slots + 1
  std::vector<std::vector<int>> kinds_;  // [i][j - i]
  std::vector<std::pair<int, int>> representative_;
  std::vector<Load> loads_;    // the first is none
  std::vector<int> load_of_;   // by stage: of its input; 0: it does not go to host memory
  std::vector<float> values_;  // [interval][load][slots]
};

}  // namespace bantam
