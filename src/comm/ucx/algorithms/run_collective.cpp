// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/run_collective.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "comm/ucx/algorithms/between_hosts.hpp"
#include "comm/ucx/algorithms/host_collective.hpp"
#include "comm/ucx/algorithms/message_collective.hpp"
#include "comm/ucx/algorithms/preamble.hpp"
#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {
namespace {

// The small blocks came with the preambles.
void take_inline_blocks(const Collective& collective, const PreambleExchange& preambles, const Session& session) {
  for (int peer = 0; peer < session.size(); peer++) {
    const auto& block = collective.incoming[peer];
    if (peer == session.rank())
      copy_block(block, collective.outgoing[peer].data);
    else if (block.bytes <= preambles.block_limit())
      copy_block(block, preambles.payload(peer));
  }
}

// Every rank has all it needs: the small blocks came with the preambles.
void reduce_inline_blocks(const Collective& collective, const PreambleExchange& preambles, const Session& session) {
  const int rank = session.rank(), root = collective.header.root;
  if (root >= 0 && root != rank) return;
  std::vector<const void*> inputs(session.size());
  for (int peer = 0; peer < session.size(); peer++) inputs[peer] = preambles.payload(peer);
  inputs[rank] = block_for(collective, rank).data;
  const auto& result = collective.incoming[0];
  collective.reduce(result.data, inputs.data(), session.size(),
                    static_cast<int64_t>(result.bytes / collective.element_size));
}

// The tensors of all ranks are mapped here: this rank reduces its slice of all of them and writes the result into each.
void reduce_in_place(const Collective& collective, const PreambleExchange& preambles, Session& session) {
  constexpr size_t kBlock = 32 << 10;  // of every rank, so that what is written was just read into the cache
  const int rank = session.rank(), size = session.size();
  const auto& own = collective.incoming[0];
  std::vector<char*> tensors(size);
  for (int peer = 0; peer < size; peer++)
    tensors[peer] = peer == rank ? own.data : session.map(peer, preambles.remote_address(peer)).get();
  const auto [start, end] = slice_of(own.bytes, rank, size);
  std::vector<const void*> inputs(size);
  for (size_t at = start; at < end; at += kBlock) {
    const size_t bytes = std::min(kBlock, end - at);
    for (int peer = 0; peer < size; peer++) inputs[peer] = tensors[peer] + at;
    collective.reduce(own.data + at, inputs.data(), size, static_cast<int64_t>(bytes / collective.element_size));
    for (int peer = 0; peer < size; peer++)
      if (peer != rank) std::memcpy(tensors[peer] + at, own.data + at, bytes);
  }
  host_barrier(session);  // no rank may continue before all slices are written
}

// The tensors of all ranks are mapped here: this rank reduces its block of all of them.
void reduce_blocks_in_place(const Collective& collective, const PreambleExchange& preambles, Session& session) {
  constexpr size_t kBlock = 32 << 10;
  const int rank = session.rank(), size = session.size();
  const auto& result = collective.incoming[0];
  std::vector<const char*> blocks(size);
  for (int peer = 0; peer < size; peer++)
    blocks[peer] = peer == rank ? collective.outgoing[rank].data
                                : session.map(peer, preambles.remote_address(peer)).get() +
                                      static_cast<size_t>(rank) * result.bytes;
  std::vector<const void*> inputs(size);
  for (size_t at = 0; at < result.bytes; at += kBlock) {
    const size_t bytes = std::min(kBlock, result.bytes - at);
    for (int peer = 0; peer < size; peer++) inputs[peer] = blocks[peer] + at;
    collective.reduce(result.data + at, inputs.data(), size, static_cast<int64_t>(bytes / collective.element_size));
  }
  host_barrier(session);  // no rank may change its tensor before all have read it
}

// The blocks of all ranks are mapped here. No rank may change its own before all have read it, which is for the caller.
void show_blocks(const Collective& collective, const PreambleExchange& preambles, Session& session) {
  const at::Tensor& own = collective.shown.own;
  std::vector<at::Tensor> blocks;
  bool are_known = true;
  for (int peer = 0; peer < session.size(); peer++) {
    are_known = are_known && preambles.remote_address(peer).is_new == 0;
    if (peer == session.rank()) {
      blocks.push_back(own);
      continue;
    }
    std::shared_ptr<char> memory = session.map(peer, preambles.remote_address(peer));
    char* const data = memory.get();
    blocks.push_back(at::from_blob(
        data, own.sizes(), [memory = std::move(memory)](void*) {}, own.options()));
  }
  *collective.shown.blocks = std::move(blocks);
  if (are_known) return;
  host_barrier(session);  // no rank may end, or free its memory, before all have mapped it
  session.memory().set_shown(preambles.remote_address(session.rank()).segment);
}

// Copies the blocks instead, for ranks that do not all have them in shared memory.
Collective with_copies(const Collective& collective, int ranks) {
  const at::Tensor& own = collective.shown.own;
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), ranks);
  *collective.shown.blocks = at::empty(sizes, own.options()).unbind(0);
  Collective copying = collective;
  for (int peer = 0; peer < ranks; peer++) {
    const at::Tensor& block = (*collective.shown.blocks)[static_cast<size_t>(peer)];
    copying.incoming[peer] = {static_cast<char*>(block.data_ptr()), block.nbytes()};
  }
  copying.shown = {};
  return copying;
}

Slices slices_on_host(const Collective& collective, const Session& session) {
  // Two ranks exchange as much if each reduces all of it.
  const bool shares_work = traits_of(collective.header.kind).combines_whole() && session.size() > 2;
  return shares_work ? slices_of_whole(collective, session) : slices_of_blocks(collective, session);
}

void move(const Collective& collective, const PreambleExchange& preambles, Session& session) {
  const Hosts& hosts = session.hosts();
  const auto kind = collective.header.kind;
  if (session.segment() != nullptr) return move_on_host(collective, preambles.largest_block(), session);
  if (kind == CollectiveKind::kBroadcast) return broadcast_between_hosts(collective, session);
  if (kind == CollectiveKind::kAllGather && hosts.hold_equally_many() && !hosts.hold_single_ranks())
    return all_gather_between_hosts(collective, session);
  take_inline_blocks(collective, preambles, session);  // blocks for each rank have all sizes
  exchange_blocks(collective, preambles.block_limit(), session);
}

void reduce(const Collective& collective, Session& session) {
  const Hosts& hosts = session.hosts();
  const bool whole = traits_of(collective.header.kind).combines_whole();
  const bool by_hosts = !hosts.hold_single_ranks() && collective.combine;
  if (session.segment() != nullptr)
    reduce_on_host(collective, slices_on_host(collective, session), session);
  else if (whole && by_hosts)
    reduce_whole_between_hosts(collective, session);
  else if (whole)
    reduce_whole_by_messages(collective, session);
  else if (by_hosts && hosts.hold_equally_many())
    reduce_scatter_between_hosts(collective, session);
  else
    reduce_by_messages(collective, slices_of_blocks(collective, session), session);
}

void run_in_place(const Collective& collective, const PreambleExchange& preambles, Session& session) {
  switch (collective.header.kind) {
    case CollectiveKind::kAllReduce:
      return reduce_in_place(collective, preambles, session);
    case CollectiveKind::kAllGather:
      return show_blocks(collective, preambles, session);
    default:
      return reduce_blocks_in_place(collective, preambles, session);
  }
}

void run_with_copies(const Collective& collective, const PreambleExchange& preambles, Session& session) {
  const bool is_small = preambles.largest_block() <= preambles.block_limit();
  if (collective.reduce)
    return is_small ? reduce_inline_blocks(collective, preambles, session) : reduce(collective, session);
  return is_small ? take_inline_blocks(collective, preambles, session) : move(collective, preambles, session);
}

}  // namespace

void run(const Collective& collective, Session& session) {
  const PreambleExchange preambles(collective, session);
  if (collective.header.kind == CollectiveKind::kBarrier) return;
  if (preambles.all_in_shared_memory()) return run_in_place(collective, preambles, session);
  if (collective.shown.blocks == nullptr) return run_with_copies(collective, preambles, session);
  run_with_copies(with_copies(collective, session.size()), preambles, session);
}

}  // namespace accel::comm::ucx
