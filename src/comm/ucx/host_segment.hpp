// Memory of the ranks of one host: each has a region of slots that it fills and the others read, with counters that say
// how far it is. A step is one use of a slot; all ranks count the same steps, also over several collectives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "comm/ucx/futex.hpp"
#include "comm/ucx/peers.hpp"
#include "comm/ucx/shared_memory.hpp"

namespace accel::comm::ucx {

class HostSegment {
 public:
  // What a rank has finished of a step: its blocks can be read; its result can be read; it has read what it wants.
  // Greetings are counted by themselves.
  enum class Stage { kFilled, kReduced, kTaken, kGreeted };
  static constexpr int kStages = 4;
  static constexpr uint32_t kDepth = 4;              // steps under way: a slot is used again after that many
  static constexpr int kMaxRanks = 64;               // with more, the chunks become too small to be worth it
  static constexpr size_t kBlockBytes = 512 << 10;   // of a slot: the blocks for the others together
  static constexpr size_t kResultBytes = 256 << 10;  // of a slot: what this rank reduced

  // A block up to this size travels with the greeting: one round, in which every rank reads all that the others have.
  // More ranks read more, and sooner gain by sharing the work.
  size_t inline_limit() const;

  // Of the region's file, which Peers makes: its first bytes are the nonce.
  static size_t file_size();

  // Maps the regions of all ranks of this host; they must be reachable (see Peers::reaches_neighbours). Ranks are
  // counted as they stand there.
  explicit HostSegment(const Peers& peers);

  // Takes the next `count` steps; returns the first one.
  uint32_t begin_steps(uint32_t count) {
    const uint32_t first = next_step_;
    next_step_ += count;
    return first;
  }

  // Who begins a greeting has ended the collective before it, and so has read those of all ranks: two are enough.
  uint32_t begin_greeting() { return next_greeting_++; }
  char* greeting(int rank, uint32_t number) const;

  char* blocks(int rank, uint32_t step) const { return slot(rank, step); }
  char* result(int rank, uint32_t step) const { return slot(rank, step) + kBlockBytes; }

  // Tells the others that this rank is done with a stage of `step`.
  void advance(Stage stage, uint32_t step);
  bool reached(int peer, Stage stage, uint32_t step) const;
  // Between these two, the peer wakes who sleeps on its counter when that moves. What has been reached may be looked at
  // after the first: one of the two sees the other.
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

  Control& control(int rank) const { return *reinterpret_cast<Control*>(regions_[rank].data()); }
  Counter& counter(int rank, Stage stage) const { return control(rank).counters[static_cast<int>(stage)]; }
  char* slot(int rank, uint32_t step) const;

  int rank_;
  int ranks_;
  uint32_t next_step_, next_greeting_;
  std::deque<Mapping> regions_;
};

}  // namespace accel::comm::ucx
