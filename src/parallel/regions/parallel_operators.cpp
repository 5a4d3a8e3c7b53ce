#include "parallel/regions/parallel_operators.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::parallel {
namespace {

using torch::autograd::variable_list;

enum class ExchangeKind { kNothing, kSum, kGather, kOwnPart, kReduceScatter, kAllToAll };

struct Exchange {
  ExchangeKind kind = ExchangeKind::kNothing;
  int64_t dim = 0;    // which is gathered or of which a part is taken; of an all-to-all, of which a part is taken
  int64_t join = 0;   // of an all-to-all, which is gathered
  int64_t whole = 0;  // size of the dimension that is gathered
};

int64_t largest_share(int64_t whole, int64_t ranks) { return (whole + ranks - 1) / ranks; }

at::Tensor own_part(const at::Tensor& input, int64_t dim, comm::Communicator& group) {
  const Share own = share_of(input.size(dim), group.rank(), group.size());
  // A copy along each dimension: a view of the input would let a change of the part change the input.
  return input.narrow(dim, own.begin, own.size).clone(at::MemoryFormat::Contiguous);
}

// A collective has blocks of one size, so a smaller part is filled up with zeros.
at::Tensor padded(const at::Tensor& part, int64_t dim, int64_t size) {
  if (part.size(dim) == size) return part;
  std::vector<int64_t> pad(static_cast<size_t>(2 * (part.dim() - dim)), 0);
  pad.back() = size - part.size(dim);
  return at::constant_pad_nd(part, pad);
}

// [ranks, ...]: what each rank gets of `dim`.
at::Tensor blocks_of(const at::Tensor& input, int64_t dim, int64_t ranks) {
  const int64_t whole = input.size(dim), largest = largest_share(whole, ranks);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[static_cast<size_t>(dim)] = largest;
  sizes.insert(sizes.begin(), ranks);
  const at::Tensor blocks =
      whole == largest * ranks ? at::empty(sizes, input.options()) : at::zeros(sizes, input.options());
  for (int64_t rank = 0; rank < ranks; rank++) {
    const Share share = share_of(whole, rank, ranks);
    blocks.select(0, rank).narrow(dim, 0, share.size).copy_(input.narrow(dim, share.begin, share.size));
  }
  return blocks;
}

// The tensor whose parts along `dim` are in blocks [ranks, ...].
at::Tensor joined(const at::Tensor& blocks, int64_t dim, int64_t whole) {
  const int64_t ranks = blocks.size(0);
  if (dim == 0 && whole == blocks.size(1) * ranks) return blocks.flatten(0, 1);
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < ranks; rank++)
    parts.push_back(blocks.select(0, rank).narrow(dim, 0, share_of(whole, rank, ranks).size));
  return at::cat(parts, dim);
}

at::Tensor gather(const at::Tensor& part, int64_t dim, int64_t whole, comm::Communicator& group) {
  const at::Tensor block = padded(part, dim, largest_share(whole, group.size())).contiguous();
  std::vector<int64_t> sizes = block.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const at::Tensor blocks = at::empty(sizes, block.options());
  group.all_gather(block, blocks);
  return joined(blocks, dim, whole);
}

at::Tensor reduce_scatter(const at::Tensor& input, int64_t dim, comm::Communicator& group) {
  const at::Tensor blocks = blocks_of(input, dim, group.size());
  const at::Tensor block = at::empty(blocks.sizes().slice(1), blocks.options());
  group.run(comm::Collective::reduce_scatter(blocks, comm::ReduceOp::kSum, block));
  return block.narrow(dim, 0, share_of(input.size(dim), group.rank(), group.size()).size).contiguous();
}

at::Tensor all_to_all(const at::Tensor& input, const Exchange& exchange, comm::Communicator& group) {
  const at::Tensor sent =
      blocks_of(padded(input, exchange.join, largest_share(exchange.whole, group.size())), exchange.dim, group.size());
  const at::Tensor received = at::empty_like(sent);
  group.run(comm::Collective::all_to_all(sent, received));
  const int64_t own = share_of(input.size(exchange.dim), group.rank(), group.size()).size;
  return joined(received.narrow(exchange.dim + 1, 0, own), exchange.join, exchange.whole).contiguous();
}

at::Tensor run(const at::Tensor& input, const Exchange& exchange, comm::Communicator& group) {
  switch (exchange.kind) {
    case ExchangeKind::kNothing:
      return input.detach();
    case ExchangeKind::kSum: {
      const at::Tensor sum = input.clone(at::MemoryFormat::Contiguous);
      group.all_reduce(sum, comm::ReduceOp::kSum);
      return sum;
    }
    case ExchangeKind::kGather:
      return gather(input, exchange.dim, exchange.whole, group);
    case ExchangeKind::kOwnPart:
      return own_part(input, exchange.dim, group);
    case ExchangeKind::kReduceScatter:
      return reduce_scatter(input, exchange.dim, group);
    case ExchangeKind::kAllToAll:
      return all_to_all(input, exchange, group);
  }
  fail(Status::kInternal, "an exchange of an unknown kind");
}

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
    output = run(input, forward, *group);
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
  require(part.size(dim) == own, Status::kShapeMismatch, "rank ", group.rank(), " of ", group.size(), " has ",
          part.size(dim), " along dimension ", dim, " of a tensor with ", *whole, "; expected ", own);
  return *whole;
}

}  // namespace

Share share_of(int64_t whole, int64_t rank, int64_t ranks) {
  const int64_t least = whole / ranks, larger = whole % ranks;
  return {rank * least + std::min(rank, larger), least + (rank < larger ? 1 : 0)};
}

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
