// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/message_collective.hpp"

#include <algorithm>
#include <vector>

#include "comm/ucx/algorithms/rabenseifner.hpp"
#include "comm/ucx/algorithms/ring.hpp"
#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kLargestChunk = 512 << 10;  // of the pipelined reduction: stays in the second-level cache
constexpr size_t kSmallestChunk = 64 << 10;
constexpr int kDepth = 2;  // chunks under way
// With more ranks each would be sent to by so many at once that their messages are in each other's way.
constexpr int kMostPairwiseRanks = 8;

bool is_power_of_two(int number) { return (number & (number - 1)) == 0; }

}  // namespace

void exchange_blocks(const Collective& collective, size_t small, Session& session) {
  const int rank = session.rank(), size = session.size();
  for (int step = 1; step < size; step++) {
    const int peer = (rank + size - step) % size;
    const auto& block = collective.incoming[peer];
    if (block.bytes > small) session.receive(peer, block.data, block.bytes, Channel::kData);
  }
  for (int step = 1; step < size; step++) {
    const int peer = (rank + step) % size;
    const auto& block = collective.outgoing[peer];
    if (block.bytes > small) session.send(peer, block.data, block.bytes, Channel::kData);
  }
  copy_block(collective.incoming[rank], collective.outgoing[rank].data);
  session.wait_all();
}

// In chunks, so that the sum of one is made, and sent back, while the next arrives, all of it in the cache. A result
// overwrites the input it was made from: its owner has read that input by then.
void reduce_by_messages(const Collective& collective, const Slices& slices, Session& session) {
  const int rank = session.rank(), size = session.size();
  const size_t largest = slices.largest_input();
  const size_t chunk = std::clamp(round_up(largest / 4, 4096), kSmallestChunk, kLargestChunk);
  const size_t chunks = (largest + chunk - 1) / chunk;
  char* const unwanted = slices.result ? nullptr : session.buffers().slice.reserve(slices.inputs[rank].bytes);
  char* const arrived = session.buffers().chunks.reserve(kDepth * chunk * static_cast<size_t>(size));
  std::vector<size_t> arrivals(static_cast<size_t>(kDepth * size));
  std::vector<const void*> inputs(size);

  const auto part = [chunk](size_t bytes, size_t k) {
    return bytes > k * chunk ? std::min(chunk, bytes - k * chunk) : 0;
  };
  const auto slot = [&](size_t k, int peer) { return (k % kDepth) * size + static_cast<size_t>(peer); };
  const auto own = slices.inputs[rank];

  for (size_t step = 0; step + 1 < chunks + kDepth; step++) {
    for (int offset = 1; step < chunks && offset < size; offset++) {
      const int peer = (rank + offset) % size;
      if (const size_t bytes = part(own.bytes, step))
        arrivals[slot(step, peer)] = session.receive(peer, arrived + slot(step, peer) * chunk, bytes, Channel::kData);
      if (const size_t bytes = part(slices.inputs[peer].bytes, step))
        session.send(peer, slices.inputs[peer].data + step * chunk, bytes, Channel::kData);
      if (const size_t bytes = part(slices.results[peer].bytes, step))
        session.receive(peer, slices.results[peer].data + step * chunk, bytes, Channel::kResult);
    }
    if (step + 1 < kDepth) continue;
    const size_t k = step + 1 - kDepth;
    const size_t bytes = part(own.bytes, k);
    if (!bytes) continue;
    for (int peer = 0; peer < size; peer++) {
      if (peer != rank) session.wait(arrivals[slot(k, peer)]);
      inputs[peer] = peer == rank ? own.data + k * chunk : arrived + slot(k, peer) * chunk;
    }
    char* const result = (slices.result ? slices.result : unwanted) + k * chunk;
    collective.reduce(result, inputs.data(), size, static_cast<int64_t>(bytes / collective.element_size));
    for (int peer = slices.first_receiver; peer <= slices.last_receiver; peer++)
      if (peer != rank) session.send(peer, result, bytes, Channel::kResult);
  }
  session.wait_all();
}

void reduce_whole_by_messages(const Collective& collective, Session& session) {
  const int size = session.size();
  const bool in_parts = collective.header.root < 0 && collective.combine;
  if (size <= kMostPairwiseRanks || !in_parts)
    reduce_by_messages(collective, slices_of_whole(collective, session), session);
  else if (is_power_of_two(size))
    all_reduce_by_halving(collective, session);
  else
    all_reduce_by_ring(collective, session);
}

}  // namespace accel::comm::ucx
