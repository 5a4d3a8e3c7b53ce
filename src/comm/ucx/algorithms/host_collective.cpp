// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/host_collective.hpp"

#include <algorithm>
#include <cstring>

#include "comm/ucx/algorithms/preamble.hpp"
#include "comm/ucx/algorithms/slices.hpp"
#include "comm/ucx/host/page_size.hpp"
#include "machine/streaming_copy.hpp"

namespace accel::comm::ucx {
namespace {

using Stage = HostSegment::Stage;

constexpr size_t kLargestHostChunk = 128 << 10;
constexpr size_t kSmallestHostChunk = 16 << 10;
// Outputs above this size are written past the caches, of which they would leave nothing for anybody.
constexpr size_t kStreamed = 32 << 20;

// Bytes of a block that pass in one step, where a slot holds `blocks` of them.
size_t chunk_for(size_t bytes, int blocks) {
  const size_t quarter = round_up(bytes / 4, kPage);
  const size_t room = HostSegment::kBlockBytes / static_cast<size_t>(blocks) / kPage * kPage;
  return std::min(std::clamp(quarter, kSmallestHostChunk, kLargestHostChunk), room);
}

// The part of a block that passes in one step.
struct Part {
  size_t start = 0, bytes = 0;
};

Part part_of(size_t bytes, size_t chunk, size_t k) {
  const size_t start = std::min(bytes, k * chunk);
  return {start, std::min(chunk, bytes - start)};
}

void copy(char* to, const char* from, size_t bytes, bool streamed) {
  if (streamed)
    copy_streaming(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

// In parts that stay in the first-level cache: what goes past the caches is made there.
void reduce_part(const Collective& collective, std::vector<const void*>& inputs, char* result, size_t bytes,
                 bool streamed) {
  constexpr size_t kBlock = 8 << 10;
  alignas(64) char made[kBlock];
  for (size_t at = 0; at < bytes; at += kBlock) {
    const size_t block = std::min(kBlock, bytes - at);
    collective.reduce(streamed ? made : result + at, inputs.data(), static_cast<int>(inputs.size()),
                      static_cast<int64_t>(block / collective.element_size));
    if (streamed) copy_streaming(result + at, made, block);
    for (auto& input : inputs) input = static_cast<const char*>(input) + block;
  }
}

// The steps of one collective, as this rank numbers them. A slot is filled when all have taken what was in it before.
class Steps {
 public:
  // Blocks have up to `bytes`. `one_block`: one block is there for all ranks; otherwise each rank gets another one.
  Steps(Session& session, size_t bytes, bool one_block)
      : session_(session),
        segment_(*session.segment()),
        one_block_(one_block),
        chunk_(chunk_for(bytes, one_block ? 1 : session.size())),
        count_((bytes + chunk_ - 1) / chunk_),
        first_(segment_.begin_steps(static_cast<uint32_t>(count_))) {}

  size_t count() const { return count_; }
  Part part(size_t bytes, size_t k) const { return part_of(bytes, chunk_, k); }

  // Where rank `from` puts the block for rank `to`, and its result.
  char* block(int from, size_t k, int to) const {
    return segment_.blocks(from, number(k)) + (one_block_ ? 0 : static_cast<size_t>(to) * chunk_);
  }
  char* result(int from, size_t k) const { return segment_.result(from, number(k)); }

  // Block p is for rank p. Waits until there is room.
  void fill(size_t k, const Blocks<Outgoing>& blocks) {
    wait_for_step(Stage::kTaken, number(k) - HostSegment::kDepth);
    for (int peer = 0; peer < session_.size(); peer++) {
      const auto part = this->part(blocks[peer].bytes, k);
      if (peer == session_.rank() || part.bytes == 0) continue;
      std::memcpy(block(session_.rank(), k, peer), blocks[peer].data + part.start, part.bytes);
      if (one_block_) break;
    }
    advance(Stage::kFilled, k);
  }
  void wait_for_all(Stage stage, size_t k) { wait_for_step(stage, number(k)); }
  void wait_for(int peer, Stage stage, size_t k) { session_.wait_for(peer, stage, number(k)); }
  void advance(Stage stage, size_t k) { segment_.advance(stage, number(k)); }

 private:
  void wait_for_step(Stage stage, uint32_t step) {
    for (int offset = 1; offset < session_.size(); offset++)
      session_.wait_for((session_.rank() + offset) % session_.size(), stage, step);
  }
  uint32_t number(size_t k) const { return first_ + static_cast<uint32_t>(k); }

  Session& session_;
  HostSegment& segment_;
  const bool one_block_;
  const size_t chunk_, count_;
  const uint32_t first_;
};

}  // namespace

void move_on_host(const Collective& collective, size_t largest, Session& session) {
  const int rank = session.rank(), size = session.size();
  const bool one_block = traits_of(collective.header.kind).sends_one_block();
  const bool streamed = largest * static_cast<size_t>(one_block ? size : 1) >= kStreamed;
  Steps steps(session, largest, one_block);

  for (size_t step = 0; step < steps.count() + 1; step++) {
    if (step < steps.count()) {
      steps.fill(step, collective.outgoing);
      // This rank's own block is copied while it is in the cache.
      const auto& own = collective.incoming[rank];
      const char* const source = collective.outgoing[rank].data;
      const auto part = steps.part(own.bytes, step);
      if (own.bytes && own.data != source) copy(own.data + part.start, source + part.start, part.bytes, streamed);
    }
    if (step == 0) continue;
    const size_t k = step - 1;
    for (int offset = 1; offset < size; offset++) {
      const int peer = (rank + offset) % size;
      const auto& block = collective.incoming[peer];
      if (block.bytes == 0) continue;
      const auto part = steps.part(block.bytes, k);
      steps.wait_for(peer, Stage::kFilled, k);
      copy(block.data + part.start, steps.block(peer, k, rank), part.bytes, streamed);
    }
    steps.advance(Stage::kTaken, k);
  }
}

void reduce_on_host(const Collective& collective, const Slices& slices, Session& session) {
  const int rank = session.rank(), size = session.size();
  const size_t largest = slices.largest_input();
  const bool returns = slices.first_receiver <= slices.last_receiver;
  const auto own = slices.inputs[rank];
  // A result that goes over its input finds it in the cache.
  const bool streamed = largest >= kStreamed && slices.result != own.data;
  std::vector<const void*> inputs(static_cast<size_t>(size));
  Steps steps(session, largest, slices.are_whole);

  for (size_t step = 0; step < steps.count() + (returns ? 2 : 1); step++) {
    if (step < steps.count()) steps.fill(step, slices.inputs);
    if (step >= 1 && step - 1 < steps.count()) {
      const size_t k = step - 1;
      const auto part = steps.part(own.bytes, k);
      steps.wait_for_all(Stage::kFilled, k);
      for (int peer = 0; peer < size; peer++)
        inputs[peer] = peer == rank ? own.data + part.start : steps.block(peer, k, rank);
      if (!returns) {
        reduce_part(collective, inputs, slices.result + part.start, part.bytes, streamed);
        steps.advance(Stage::kTaken, k);
        continue;
      }
      char* const result = steps.result(rank, k);
      reduce_part(collective, inputs, result, part.bytes, false);
      steps.advance(Stage::kReduced, k);
      if (slices.result) std::memcpy(slices.result + part.start, result, part.bytes);
    }
    if (step < 2) continue;
    const size_t k = step - 2;
    steps.wait_for_all(Stage::kReduced, k);
    for (int offset = 1; offset < size; offset++) {
      const int peer = (rank + offset) % size;
      const auto part = steps.part(slices.results[peer].bytes, k);
      if (part.bytes) std::memcpy(slices.results[peer].data + part.start, steps.result(peer, k), part.bytes);
    }
    steps.advance(Stage::kTaken, k);
  }
}

void host_barrier(Session& session) {
  Steps steps(session, 1, true);
  steps.advance(Stage::kTaken, 0);
  steps.wait_for_all(Stage::kTaken, 0);
}

}  // namespace accel::comm::ucx
