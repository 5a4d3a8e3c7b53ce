// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/context_split.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/generated/choices/load_balance.hpp"
#include "config/generated/settings/parallelism/context_parallel.hpp"
#include "parallel/context/context_scope.hpp"
#include "parallel/context/sequence_parts.hpp"

namespace accel::parallel {
namespace {

// With whole sequences of some heads the ranks' work is equal in any order.
SequenceOrder order_of(const ContextParallelSettings& settings, int ranks) {
  const bool is_contiguous =
      ranks == 1 || settings.load_balance.value == LoadBalance::kNo || settings.method.value == ContextMethod::kUlysses;
  return is_contiguous ? SequenceOrder::kContiguous : SequenceOrder::kHeadAndTail;
}

class ScopeOfContext final : public SequenceSplit::Scope {
 public:
  ScopeOfContext(const ContextParallelism& split, std::vector<SplitBuffer> buffers)
      : scope_(split, std::move(buffers)) {}

 private:
  const ContextScope scope_;
};

class ContextSplit final : public SequenceSplit {
 public:
  ContextSplit(ContextParallelism split, int64_t only_length) : split_(std::move(split)), only_length_(only_length) {}

  std::unique_ptr<Scope> open(std::vector<SplitBuffer> buffers) const override {
    for (const SplitBuffer& buffer : buffers) check_length(buffer.tensor, buffer.dim);
    return std::make_unique<ScopeOfContext>(split_, std::move(buffers));
  }

  at::Tensor part_of(const at::Tensor& whole, int64_t dim) const override {
    check_length(whole, dim);
    return split_sequence(whole, dim, split_.order, split_.group);
  }

  at::Tensor join(const at::Tensor& part, int64_t dim) const override {
    return join_sequence(part, dim, split_.order, GatheredGradient::kPartial, split_.group);
  }

  at::Tensor positions(int64_t length) const override {
    require(length >= 0, Status::kInvalidArgument, "length is ", length, "; expected that of a sequence");
    return sequence_positions(length, split_.group->rank(), split_.group->size(), split_.order);
  }

 private:
  void check_length(const at::Tensor& whole, int64_t dim) const {
    if (only_length_ == 0 || dim < -whole.dim() || dim >= whole.dim()) return;  // the dimension is checked behind this
    require(whole.size(dim) == only_length_, Status::kInvalidArgument, "a sequence has ", whole.size(dim),
            " positions, sequence_length is ", only_length_,
            " and variable_length 0; expected sequences of that length, or variable_length 1");
  }

  const ContextParallelism split_;
  const int64_t only_length_;  // 0: any
};

}  // namespace

SequenceSplitPtr make_context_split(const ContextParallelSettings& settings, const RankGroup& group) {
  require(settings.variable_length || settings.sequence_length > 0, Status::kInvalidArgument,
          "variable_length is 0 and sequence_length is 0; expected the length of all sequences, or variable_length 1");
  const ContextParallelism split{group, settings.method.value, order_of(settings, group->size()),
                                 std::make_shared<ExchangeMemory>(group)};
  return std::make_shared<const ContextSplit>(split, settings.variable_length ? 0 : settings.sequence_length.value);
}

}  // namespace accel::parallel
