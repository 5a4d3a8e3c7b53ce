// SPDX-License-Identifier: Apache-2.0
// Host segment: shared memory of the ranks of one host. Each rank has a region of slots, which it fills and the others
// read, with counters of its progress. A step is one use of a slot; all ranks count the same steps, across collectives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "comm/ucx/host/futex.hpp"
#include "comm/ucx/host/shared_mapping.hpp"

namespace accel::comm::ucx {

class HostSegment {
 public:
  // Stages of a step that a rank completes: its blocks are readable; its result is readable; it has read all it needs.
  // Preambles are counted separately.
  enum class Stage { kFilled, kReduced, kTaken, kPreamble };
  static constexpr int kStages = 4;
  static constexpr uint32_t kDepth = 4;              // slots per rank: a slot is reused after this many steps
  static constexpr int kMaxRanks = 64;               // with more, the chunks become too small
  static constexpr size_t kBlockBytes = 512 << 10;   // of a slot: all blocks for other ranks
  static constexpr size_t kResultBytes = 256 << 10;  // of a slot: the result that this rank reduced

  static constexpr size_t kLeastInlineBytes = 8192;  // of inline_limit()

  // Blocks up to this size are sent with the preamble: one round, in which every rank reads the data of all others.
  // With more ranks, sharing the reduction pays at smaller sizes.
  size_t inline_limit() const;

  // The size of a region's file, whose first bytes are a nonce of its creator.
  static size_t file_size();

  // Maps the regions of all ranks of this host from their `files`. Ranks are numbered within the host, where this one
  // is at `position`; `rank` stands in errors.
  HostSegment(const std::vector<int>& files, int position, int rank);

  // Takes the next `count` steps; returns the first one.
  uint32_t begin_steps(uint32_t count) {
    const uint32_t first = next_step_;
    next_step_ += count;
    return first;
  }

  // A rank that begins a preamble has completed the previous collective and so read all its preambles: two buffers
  // suffice.
  uint32_t begin_preamble() { return next_preamble_++; }
  char* preamble(int rank, uint32_t number) const;

  char* blocks(int rank, uint32_t step) const { return slot(rank, step); }
  char* result(int rank, uint32_t step) const { return slot(rank, step) + kBlockBytes; }

  // Publishes that this rank has completed a stage of `step`.
  void advance(Stage stage, uint32_t step) {
    Counter& own = counter(rank_, stage);
    // A sleeper registers before it reads the steps: either it sees the advance, or it is seen here.
    own.steps.store(step + 1 - kFirstStep, std::memory_order_seq_cst);
    if (own.sleepers.load(std::memory_order_seq_cst) != 0) wake_sleepers(own.steps);
  }
  bool reached(int peer, Stage stage, uint32_t step) const {
    const uint32_t finished = counter(peer, stage).steps.load(std::memory_order_acquire) + kFirstStep;
    return static_cast<int32_t>(finished - (step + 1)) >= 0;
  }
  // Between these two calls, the peer wakes sleepers of its counter when it advances. Check reached() after the first
  // call: either it sees the advance, or the peer sees the sleeper.
  FutexWait begin_sleep(int peer, Stage stage) const;
  void end_sleep(int peer, Stage stage) const;

 private:
  struct alignas(64) Counter {
    std::atomic<uint32_t> steps;  // finished; wraps around
    std::atomic<uint32_t> sleepers;
  };
  struct Control {
    alignas(64) uint64_t nonce;
    Counter counters[kStages];
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "a lock would not be shared");

  // The counters in the file begin at 0, which stands for this step: every group soon passes their wrap-around.
  static constexpr uint32_t kFirstStep = ~uint32_t{0} - 20;

  Counter& counter(int rank, Stage stage) const {
    return reinterpret_cast<Control*>(starts_[static_cast<size_t>(rank)])->counters[static_cast<int>(stage)];
  }
  char* slot(int rank, uint32_t step) const;

  int rank_;
  int ranks_;
  uint32_t next_step_, next_preamble_;
  std::deque<Mapping> regions_;
  std::vector<char*> starts_;  // of the regions
};

}  // namespace accel::comm::ucx
