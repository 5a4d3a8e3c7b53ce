#include "comm/ucx/host_collective.hpp"

#include <algorithm>
#include <cstring>

#include "comm/ucx/greetings.hpp"
#include "comm/ucx/session.hpp"
#include "comm/ucx/streaming_copy.hpp"

namespace accel::comm::ucx {
namespace {

using Stage = HostSegment::Stage;

constexpr size_t kLargestChunk = 128 << 10;
constexpr size_t kSmallestChunk = 16 << 10;
constexpr size_t kPage = 4096;
// Outputs above this size are written past the caches, of which they would leave nothing for anybody.
constexpr size_t kStreamed = 32 << 20;

// Bytes of a block that pass in one step, where a slot holds `blocks` of them.
size_t chunk_for(size_t bytes, int blocks) {
  const size_t quarter = (bytes / 4 + kPage - 1) / kPage * kPage;
  const size_t room = HostSegment::kBlockBytes / static_cast<size_t>(blocks) / kPage * kPage;
  return std::min(std::clamp(quarter, kSmallestChunk, kLargestChunk), room);
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
  Steps(Session& session, size_t bytes, int blocks)
      : session_(session), segment_(*session.segment()), chunk_(chunk_for(bytes, blocks)) {
    const size_t count = (bytes + chunk_ - 1) / chunk_;
    first_ = segment_.begin_steps(static_cast<uint32_t>(count));
    count_ = count;
  }

  size_t count() const { return count_; }
  size_t chunk() const { return chunk_; }
  Part part(size_t bytes, size_t k) const { return part_of(bytes, chunk_, k); }

  // Where rank `from` puts the block numbered `block`, and its result.
  char* block(int from, size_t k, int block) const {
    return segment_.blocks(from, number(k)) + static_cast<size_t>(block) * chunk_;
  }
  char* result(int from, size_t k) const { return segment_.result(from, number(k)); }

  void wait_for_room(size_t k) { wait_for_step(Stage::kTaken, number(k) - HostSegment::kDepth); }
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
  const size_t chunk_;
  uint32_t first_;
  size_t count_;
};

}  // namespace

void move_on_host(const Collective& collective, size_t largest, Session& session) {
  const int rank = session.rank(), size = session.size();
  const bool one_block = sends_one_block(collective.header.operation);
  const bool streamed = largest * static_cast<size_t>(one_block ? size : 1) >= kStreamed;
  Steps steps(session, largest, one_block ? 1 : size);

  for (size_t step = 0; step < steps.count() + 1; step++) {
    if (step < steps.count()) {
      steps.wait_for_room(step);
      bool filled = false;
      for (int peer = 0; peer < size && !(filled && one_block); peer++) {
        const auto& block = collective.outgoing[peer];
        if (peer == rank || block.bytes == 0) continue;
        const auto part = steps.part(block.bytes, step);
        std::memcpy(steps.block(rank, step, one_block ? 0 : peer), block.data + part.start, part.bytes);
        filled = true;
      }
      steps.advance(Stage::kFilled, step);
      // What stays here goes while it is in the cache.
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
      copy(block.data + part.start, steps.block(peer, k, one_block ? 0 : rank), part.bytes, streamed);
    }
    steps.advance(Stage::kTaken, k);
  }
}

void reduce_on_host(const Collective& collective, const Slices& slices, Session& session) {
  const int rank = session.rank(), size = session.size();
  size_t largest = 0;
  for (const auto& slice : slices.inputs) largest = std::max(largest, slice.bytes);
  const bool returns = slices.first_receiver <= slices.last_receiver;
  const auto own = slices.inputs[rank];
  // A result that goes over its input finds it in the cache.
  const bool streamed = largest >= kStreamed && slices.result != own.data;
  const bool one_block = slices.are_whole;
  std::vector<const void*> inputs(static_cast<size_t>(size));
  Steps steps(session, largest, one_block ? 1 : size);

  for (size_t step = 0; step < steps.count() + (returns ? 2 : 1); step++) {
    if (step < steps.count()) {
      steps.wait_for_room(step);
      for (int peer = 0; peer < size; peer++) {
        const auto part = steps.part(slices.inputs[peer].bytes, step);
        if (peer == rank || part.bytes == 0) continue;
        std::memcpy(steps.block(rank, step, one_block ? 0 : peer), slices.inputs[peer].data + part.start, part.bytes);
        if (one_block) break;
      }
      steps.advance(Stage::kFilled, step);
    }
    if (step >= 1 && step - 1 < steps.count()) {
      const size_t k = step - 1;
      const auto part = steps.part(own.bytes, k);
      steps.wait_for_all(Stage::kFilled, k);
      for (int peer = 0; peer < size; peer++)
        inputs[peer] = peer == rank ? own.data + part.start : steps.block(peer, k, one_block ? 0 : rank);
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

void meet_on_host(Session& session) {
  Steps steps(session, 1, 1);
  steps.advance(Stage::kTaken, 0);
  steps.wait_for_all(Stage::kTaken, 0);
}

}  // namespace accel::comm::ucx
