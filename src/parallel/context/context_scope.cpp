// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/context_scope.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <memory>
#include <optional>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "nn/call_path.hpp"
#include "nn/split/split_operators.hpp"

namespace accel::parallel {
namespace {

class ContextSequence final : public nn::SplitSequence {
 public:
  explicit ContextSequence(ContextParallelism split) : split_(std::move(split)) {}

  // Methods that call the operator themselves mean LibTorch's.
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                       std::optional<double> scale) const override try {
    const Scope whole(nullptr);
    return context_parallel_attention(query, key, value, is_causal, scale, split_);
  } catch (const Error& error) {
    throw Error(error.status(), nn::in_called_module() + error.message());
  } catch (const comm::CollectiveError& error) {
    throw comm::CollectiveError(error.failure(), error.rank(), nn::in_called_module() + error.what());
  }

  at::Tensor positions(int64_t own_length) const override {
    return sequence_positions(whole_length(own_length), split_.group->rank(), split_.group->size(), split_.order);
  }

  int64_t whole_length(int64_t own_length) const override { return own_length * split_.group->size(); }

  at::Tensor mean(const at::Tensor& sum, const at::Tensor& count) const override {
    at::Tensor totals;
    {
      const at::NoGradGuard without_graph;
      totals = at::stack({sum.detach().to(at::kDouble), count.to(at::kDouble)});
      split_.group->all_reduce(totals, comm::ReduceOp::kSum);
    }
    const at::Tensor total_count = totals.select(0, 1);
    const at::Tensor mean = totals.select(0, 0).div(total_count).to(sum.scalar_type());
    if (!at::GradMode::is_enabled() || !sum.requires_grad()) return mean;
    // The gradient of this rank's part, the value of all.
    const at::Tensor own = sum.mul(total_count.reciprocal().mul(split_.group->size()).to(sum.scalar_type()));
    return own.sub(own.detach()).add(mean);
  }

  int64_t total(int64_t own) const override {
    const at::NoGradGuard without_graph;
    const at::Tensor sum = at::full({1}, own, at::TensorOptions().dtype(at::kLong)).to(split_.group->device());
    split_.group->all_reduce(sum, comm::ReduceOp::kSum);
    return sum.item<int64_t>();
  }

 private:
  const ContextParallelism split_;
};

std::shared_ptr<const nn::SplitSequence> sequence_of(const ContextParallelism& split) {
  return split.group->size() == 1 ? nullptr : std::make_shared<const ContextSequence>(split);
}

// The parts that the buffers are to show.
std::vector<at::Tensor> parts_of(const ContextParallelism& split, const std::vector<SplitBuffer>& buffers) {
  std::vector<at::Tensor> parts;
  std::optional<int64_t> length;
  for (const SplitBuffer& buffer : buffers) {
    require(
        !buffer.tensor.requires_grad(), Status::kInvalidArgument,
        "a buffer of a split sequence requires a gradient; expected a tensor without one, such as tokens or labels");
    parts.push_back(split_sequence(buffer.tensor, buffer.dim, split.order, split.group));
    const int64_t own = buffer.tensor.size(buffer.dim);
    if (!length) length = own;
    require(own == *length, Status::kInvalidArgument, "buffer ", parts.size() - 1, " of a split sequence has ", own,
            " positions along dimension ", buffer.dim, " and buffer 0 has ", *length, "; expected as many");
  }
  return parts;
}

// A handle shows this; its version stays.
void show(const at::Tensor& buffer, const at::Tensor& data) {
  buffer.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

class SavedPart final : public tensor::SavedTensorStandIn {
 public:
  explicit SavedPart(at::Tensor part) : part_(std::move(part)) {}
  at::Tensor tensor() override { return part_; }

 private:
  const at::Tensor part_;
};

// A backward after the scope needs what a buffer has shown in it, where a node saves the handle.
tensor::SavedTensorHooks::Replace parts_for(std::vector<std::pair<at::Tensor, at::Tensor>> parts) {
  return [parts = std::move(parts)](const at::Tensor& saved) -> std::unique_ptr<tensor::SavedTensorStandIn> {
    for (const auto& [buffer, part] : parts)
      if (saved.is_same(buffer)) return std::make_unique<SavedPart>(part);
    return nullptr;
  };
}

}  // namespace

ContextScope::ContextScope(const ContextParallelism& split, std::vector<SplitBuffer> buffers)
    : scope_(sequence_of(split)) {
  const std::vector<at::Tensor> parts = parts_of(split, buffers);
  if (split.group->size() == 1) return;
  nn::install_split_operators(split.group->device());
  std::vector<std::pair<at::Tensor, at::Tensor>> shown;
  for (size_t i = 0; i < buffers.size(); i++) {
    if (!buffers[i].restore) continue;
    wholes_.emplace_back(buffers[i].tensor, buffers[i].tensor.detach());
    shown.emplace_back(buffers[i].tensor, parts[i]);
  }
  if (!shown.empty()) saved_parts_.emplace(parts_for(std::move(shown)));
  for (size_t i = 0; i < buffers.size(); i++) show(buffers[i].tensor, parts[i]);
}

ContextScope::~ContextScope() {
  for (const auto& [buffer, whole] : wholes_) show(buffer, whole);
}

}  // namespace accel::parallel
