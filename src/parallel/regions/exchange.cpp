// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/exchange.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

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
at::Tensor blocks_of(const at::Tensor& input, int64_t dim, int64_t ranks, ExchangeMemory* memory = nullptr) {
  const int64_t whole = input.size(dim), largest = largest_share(whole, ranks);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[static_cast<size_t>(dim)] = largest;
  sizes.insert(sizes.begin(), ranks);
  const bool is_even = whole == largest * ranks;
  const at::Tensor blocks = !is_even            ? at::zeros(sizes, input.options())
                            : memory == nullptr ? at::empty(sizes, input.options())
                                                : memory->take(sizes, input.options());
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

}  // namespace

Share share_of(int64_t whole, int64_t rank, int64_t ranks) {
  const int64_t least = whole / ranks, larger = whole % ranks;
  return {rank * least + std::min(rank, larger), least + (rank < larger ? 1 : 0)};
}

at::Tensor run_exchange(const at::Tensor& input, const Exchange& exchange, comm::Communicator& group) {
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

StartedExchange start_exchange(at::Tensor input, const Exchange& exchange, comm::Communicator& group,
                               comm::RunsOn thread, ExchangeMemory* memory) {
  StartedExchange started{{}, nullptr, exchange};
  switch (exchange.kind) {
    case ExchangeKind::kSum: {
      const bool is_ours = input.use_count() == 1 && input.is_contiguous() &&
                           (input.storage().use_count() == 1 || (memory != nullptr && memory->has_alone(input)));
      started.memory = is_ours ? std::move(input) : input.clone(at::MemoryFormat::Contiguous);
      started.work = group.start(comm::Collective::all_reduce(started.memory, comm::ReduceOp::kSum), thread);
      return started;
    }
    case ExchangeKind::kGather: {
      const at::Tensor part = input.contiguous();
      std::vector<int64_t> sizes = part.sizes().vec();
      sizes.insert(sizes.begin(), group.size());
      started.memory = at::empty(sizes, part.options());
      started.work = group.start(comm::Collective::all_gather(part, started.memory), thread);
      return started;
    }
    case ExchangeKind::kReduceScatter: {
      const at::Tensor blocks = blocks_of(input, exchange.dim, group.size(), memory);
      started.memory = at::empty(blocks.sizes().slice(1), blocks.options());
      started.work =
          group.start(comm::Collective::reduce_scatter(blocks, comm::ReduceOp::kSum, started.memory), thread);
      return started;
    }
    default:
      fail(Status::kInternal, "an exchange of this kind cannot be started");
  }
}

at::Tensor StartedExchange::finish() {
  if (const auto under_way = std::exchange(work, nullptr)) under_way->synchronize();
  return exchange.kind == ExchangeKind::kGather ? joined(memory, exchange.dim, exchange.whole) : memory;
}

}  // namespace accel::parallel
