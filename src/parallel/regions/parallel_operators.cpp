// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/parallel_operators.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/job_rank.hpp"
#include "parallel/regions/exchange.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::parallel {
namespace {

using torch::autograd::variable_list;

at::Tensor exchange_with_gradient(const at::Tensor& input, const Exchange& forward, const Exchange& backward,
                                  const RankGroup& group);

class ExchangeBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "ParallelExchangeBackward"; }

  // A missing gradient is zeros here: other ranks may have one, and wait.
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor gradient = gradients[0].defined() ? std::move(gradients[0]) : at::zeros(sizes, options);
    return {exchange_with_gradient(gradient, backward, forward, group)};
  }

  Exchange forward, backward;
  RankGroup group;
  std::vector<int64_t> sizes;  // of the output
  at::TensorOptions options;
};

at::Tensor exchange_with_gradient(const at::Tensor& input, const Exchange& forward, const Exchange& backward,
                                  const RankGroup& group) {
  const bool differentiable = at::GradMode::is_enabled() && input.requires_grad();
  at::Tensor output;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    output = run_exchange(input, forward, *group);
  }
  if (!differentiable) return output;
  const auto node = tensor::make_autograd_node<ExchangeBackward>(torch::autograd::collect_next_edges(input));
  node->forward = forward;
  node->backward = backward;
  node->group = group;
  node->sizes = output.sizes().vec();
  node->options = output.options();
  torch::autograd::set_history(output, node);
  return output;
}

int64_t checked_dim(const at::Tensor& input, int64_t dim, const char* name) {
  const int64_t dims = input.dim();
  require(dim >= -dims && dim < dims, Status::kInvalidArgument, name, ": ", dim, " of a tensor with ", dims,
          " dimensions; expected one from ", -dims, " to ", dims - 1);
  return dim < 0 ? dim + dims : dim;
}

// The size of the whole along `dim`, of which this rank must have its share.
int64_t checked_whole(const at::Tensor& part, int64_t dim, std::optional<int64_t> whole, comm::Communicator& group) {
  if (!whole) return part.size(dim) * group.size();
  const int64_t own = share_of(*whole, group.rank(), group.size()).size;
  require(part.size(dim) == own, Status::kShapeMismatch, "rank ", comm::job_rank(group, group.rank()), " has ",
          part.size(dim), " along dimension ", dim, " of a tensor with ", *whole, "; expected ", own);
  return *whole;
}

}  // namespace

at::Tensor parallel_copy(const at::Tensor& input, const RankGroup& group) {
  return group->size() == 1 ? input
                            : exchange_with_gradient(input, {ExchangeKind::kNothing}, {ExchangeKind::kSum}, group);
}

at::Tensor parallel_reduce(const at::Tensor& input, const RankGroup& group) {
  return group->size() == 1 ? input
                            : exchange_with_gradient(input, {ExchangeKind::kSum}, {ExchangeKind::kNothing}, group);
}

at::Tensor parallel_gather(const at::Tensor& part, int64_t dim, GatheredGradient gradient, const RankGroup& group,
                           std::optional<int64_t> whole) {
  dim = checked_dim(part, dim, "dim");
  const int64_t size = checked_whole(part, dim, whole, *group);
  if (group->size() == 1) return part;
  const ExchangeKind back =
      gradient == GatheredGradient::kReplicated ? ExchangeKind::kOwnPart : ExchangeKind::kReduceScatter;
  return exchange_with_gradient(part, {ExchangeKind::kGather, dim, 0, size}, {back, dim}, group);
}

at::Tensor parallel_scatter(const at::Tensor& input, int64_t dim, const RankGroup& group) {
  dim = checked_dim(input, dim, "dim");
  if (group->size() == 1) return input;
  return exchange_with_gradient(input, {ExchangeKind::kOwnPart, dim}, {ExchangeKind::kGather, dim, 0, input.size(dim)},
                                group);
}

at::Tensor parallel_reduce_scatter(const at::Tensor& input, int64_t dim, const RankGroup& group) {
  dim = checked_dim(input, dim, "dim");
  if (group->size() == 1) return input;
  return exchange_with_gradient(input, {ExchangeKind::kReduceScatter, dim},
                                {ExchangeKind::kGather, dim, 0, input.size(dim)}, group);
}

at::Tensor parallel_all_to_all(const at::Tensor& input, int64_t split, int64_t join, const RankGroup& group,
                               std::optional<int64_t> whole) {
  split = checked_dim(input, split, "split");
  join = checked_dim(input, join, "join");
  require(split != join, Status::kInvalidArgument, "split and join are both dimension ", split,
          "; expected two different ones");
  const int64_t size = checked_whole(input, join, whole, *group);
  if (group->size() == 1) return input;
  return exchange_with_gradient(input, {ExchangeKind::kAllToAll, split, join, size},
                                {ExchangeKind::kAllToAll, join, split, input.size(split)}, group);
}

}  // namespace accel::parallel
