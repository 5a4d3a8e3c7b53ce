// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/sequence_parts.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

// Cuts the length into chunks and gives those of the rank.
std::vector<Share> parts_of(int64_t chunk, int64_t rank, int64_t ranks, SequenceOrder order) {
  if (order == SequenceOrder::kContiguous) return {{rank * chunk, chunk}};
  return {{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}};
}

int64_t chunks_of(int64_t ranks, SequenceOrder order) {
  return order == SequenceOrder::kContiguous ? ranks : 2 * ranks;
}

int64_t checked_dim(const at::Tensor& tensor, int64_t dim) {
  require(dim >= -tensor.dim() && dim < tensor.dim(), Status::kInvalidArgument, "dim: ", dim, " of a tensor with ",
          tensor.dim(), " dimensions; expected one from ", -tensor.dim(), " to ", tensor.dim() - 1);
  return dim < 0 ? dim + tensor.dim() : dim;
}

}  // namespace

std::vector<Share> sequence_parts(int64_t length, int64_t rank, int64_t ranks, SequenceOrder order) {
  const int64_t chunks = chunks_of(ranks, order);
  require(length % chunks == 0, Status::kInvalidArgument, "a sequence of ", length, " positions cannot be split over ",
          ranks, " ranks in ", chunks, " equal chunks; expected a multiple of ", chunks, ", pad it to ",
          (length / chunks + 1) * chunks);
  return parts_of(length / chunks, rank, ranks, order);
}

at::Tensor sequence_positions(int64_t length, int64_t rank, int64_t ranks, SequenceOrder order) {
  std::vector<at::Tensor> positions;
  for (const Share& part : sequence_parts(length, rank, ranks, order))
    positions.push_back(at::arange(part.begin, part.begin + part.size, at::kLong));
  return at::cat(positions);
}

at::Tensor split_sequence(const at::Tensor& whole, int64_t dim, SequenceOrder order, const RankGroup& group) {
  dim = checked_dim(whole, dim);
  if (group->size() == 1) return whole;
  std::vector<at::Tensor> chunks;
  for (const Share& part : sequence_parts(whole.size(dim), group->rank(), group->size(), order))
    chunks.push_back(whole.narrow(dim, part.begin, part.size));
  return at::cat(chunks, dim);
}

at::Tensor join_sequence(const at::Tensor& part, int64_t dim, SequenceOrder order, GatheredGradient gradient,
                         const RankGroup& group) {
  dim = checked_dim(part, dim);
  const int64_t ranks = group->size(), chunks = chunks_of(ranks, order), whole = part.size(dim) * ranks;
  require(whole % chunks == 0, Status::kInvalidArgument, "a rank's part has ", part.size(dim),
          " positions; expected an even number, for a chunk of the head and one of the tail");
  const at::Tensor gathered = parallel_gather(part, dim, gradient, group);
  if (order == SequenceOrder::kContiguous || ranks == 1) return gathered;
  // Rank r's chunks lie at 2 r and 2 r + 1.
  const int64_t chunk = whole / chunks;
  std::vector<at::Tensor> in_order;
  for (int64_t rank = 0; rank < ranks; rank++) in_order.push_back(gathered.narrow(dim, 2 * rank * chunk, chunk));
  for (int64_t rank = ranks - 1; rank >= 0; rank--)
    in_order.push_back(gathered.narrow(dim, (2 * rank + 1) * chunk, chunk));
  return at::cat(in_order, dim);
}

}  // namespace accel::parallel
