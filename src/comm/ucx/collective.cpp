#include "comm/ucx/collective.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/greetings.hpp"
#include "comm/ucx/host_collective.hpp"
#include "comm/ucx/session.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kLargestChunk = 512 << 10;  // of the pipelined reduction: stays in the second-level cache
constexpr size_t kSmallestChunk = 64 << 10;
constexpr size_t kLine = 64;
constexpr int kDepth = 2;  // chunks under way

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void copy_block(const Incoming& to, const char* from) {
  if (to.bytes && to.data != from) std::memmove(to.data, from, to.bytes);
}

// Blocks that are only moved: broadcast, gather, scatter, all_gather, all_to_all.
void exchange(const Collective& collective, const Greetings& greetings, Session& session) {
  const int rank = session.rank(), size = session.size();
  for (int step = 1; step < size; step++) {
    const int peer = (rank + size - step) % size;
    const auto& block = collective.incoming[peer];
    if (block.bytes > kInlineLimit)
      session.receive(peer, block.data, block.bytes, Channel::kData);
    else
      copy_block(block, greetings.payload(peer));
  }
  for (int step = 1; step < size; step++) {
    const int peer = (rank + step) % size;
    const auto& block = collective.outgoing[peer];
    if (block.bytes > kInlineLimit) session.send(peer, block.data, block.bytes, Channel::kData);
  }
  copy_block(collective.incoming[rank], collective.outgoing[rank].data);
  session.wait_all();
}

// Every rank has all it needs: the small blocks came with the headers.
void reduce_greetings(const Collective& collective, const Greetings& greetings, const Session& session, const char* own,
                      const Incoming& result) {
  std::vector<const void*> inputs(session.size());
  for (int peer = 0; peer < session.size(); peer++)
    inputs[peer] = peer == session.rank() ? own : greetings.payload(peer);
  collective.reduce(result.data, inputs.data(), session.size(),
                    static_cast<int64_t>(result.bytes / collective.element_size));
}

// In chunks, so that the sum of one is made, and sent back, while the next arrives, all of it in the cache. A result
// overwrites the input it was made from: its owner has read that input by then.
void reduce_by_messages(const Collective& collective, const Slices& slices, Session& session) {
  const int rank = session.rank(), size = session.size();
  size_t largest = 0;
  for (const auto& slice : slices.inputs) largest = std::max(largest, slice.bytes);
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

// Equal parts, but for the last ones; cut at cache lines, of which every element size is a part.
std::pair<size_t, size_t> slice_of(size_t bytes, int rank, int size) {
  const size_t slice = round_up((bytes + size - 1) / size, kLine);
  const size_t start = std::min(bytes, slice * rank);
  return {start, std::min(bytes, start + slice)};
}

// The tensors of all ranks are mapped here: this rank reduces its slice of all of them and writes the result into each.
void reduce_in_place(const Collective& collective, const Greetings& greetings, Session& session) {
  constexpr size_t kBlock = 32 << 10;  // of every rank, so that what is written was just read into the cache
  const int rank = session.rank(), size = session.size();
  const auto& own = collective.incoming[0];
  std::vector<char*> tensors(size);
  for (int peer = 0; peer < size; peer++)
    tensors[peer] = peer == rank ? own.data : session.attach(peer, greetings.place(peer));
  const auto [start, end] = slice_of(own.bytes, rank, size);
  std::vector<const void*> inputs(size);
  for (size_t at = start; at < end; at += kBlock) {
    const size_t bytes = std::min(kBlock, end - at);
    for (int peer = 0; peer < size; peer++) inputs[peer] = tensors[peer] + at;
    collective.reduce(own.data + at, inputs.data(), size, static_cast<int64_t>(bytes / collective.element_size));
    for (int peer = 0; peer < size; peer++)
      if (peer != rank) std::memcpy(tensors[peer] + at, own.data + at, bytes);
  }
  // Nobody may go on before all slices are written.
  for (int offset = 1; offset < size; offset++) {
    session.receive((rank + size - offset) % size, nullptr, 0, Channel::kResult);
    session.send((rank + offset) % size, nullptr, 0, Channel::kResult);
  }
  session.wait_all();
}

void reduce_slices(const Collective& collective, const Slices& slices, bool on_host, Session& session) {
  if (on_host)
    reduce_on_host(collective, slices, session);
  else
    reduce_by_messages(collective, slices, session);
}

// all_reduce and reduce: the slices are equal parts of the whole tensor.
void reduce_whole(const Collective& collective, bool on_host, Session& session) {
  const int rank = session.rank(), size = session.size(), root = collective.header.root;
  const auto& input = collective.outgoing[0];
  const auto& output = collective.incoming[0];
  const bool wanted = root < 0 || root == rank;
  Slices slices;
  for (int peer = 0; peer < size; peer++) {
    const auto [start, end] = slice_of(input.bytes, peer, size);
    slices.inputs.push_back({input.data + start, end - start});
    slices.results.push_back(wanted ? Incoming{output.data + start, end - start} : Incoming{});
  }
  // A rank that is not the root keeps its tensor as it is.
  slices.result = wanted ? slices.results[rank].data : nullptr;
  slices.first_receiver = root < 0 ? 0 : root;
  slices.last_receiver = root < 0 ? size - 1 : root;
  reduce_slices(collective, slices, on_host, session);
}

void reduce_scatter(const Collective& collective, bool on_host, Session& session) {
  Slices slices;
  slices.inputs = collective.outgoing;
  slices.result = collective.incoming[0].data;
  slices.results.resize(collective.outgoing.size());
  reduce_slices(collective, slices, on_host, session);
}

}  // namespace

void run(const Collective& collective, Session& session) {
  const Greetings greetings(collective, session);
  if (collective.header.operation == Operation::kBarrier) return;
  const size_t bytes = static_cast<size_t>(collective.header.numel) * collective.element_size;
  const bool on_host = session.segment() != nullptr && bytes > kInlineLimit;
  if (!collective.reduce && on_host) return move_on_host(collective, session);
  if (!collective.reduce) return exchange(collective, greetings, session);
  const bool whole = combines_whole(collective.header.operation);
  const auto& own = collective.outgoing[whole ? 0 : session.rank()];
  if (greetings.all_in_shared_memory()) return reduce_in_place(collective, greetings, session);
  if (own.bytes > kInlineLimit)
    return whole ? reduce_whole(collective, on_host, session) : reduce_scatter(collective, on_host, session);
  if (!whole || collective.header.root < 0 || collective.header.root == session.rank())
    reduce_greetings(collective, greetings, session, own.data, collective.incoming[0]);
}

}  // namespace accel::comm::ucx
