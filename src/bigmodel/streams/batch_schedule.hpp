// SPDX-License-Identifier: Apache-2.0
// Batch schedule: several forwards of one model share a pass over its offloaded weights.
//
// Note: one pass for several batches. Each batch has a thread, and one of them computes at a time. Before its next
// block a thread waits for the others: when all have reached their next blocks, or ended, the blocks of before are
// released, and all go on, so each block comes once and runs for all batches. Forwards that use their blocks in
// different orders compute the same, with more copies.
#pragma once

#include <c10/core/Device.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "bigmodel/streams/block_stream.hpp"

namespace accel::bigmodel {

class BatchSchedule {
 public:
  // Runs the bodies, each on a thread of its own with the settings of this one: gradients, precision, kernels, and the
  // stream of the device. Throws the first error in the order of the bodies.
  static void run(const std::vector<std::function<void()>>& bodies, c10::Device device);

  // The schedule of this thread; null outside of run().
  static BatchSchedule* current();

  // Before the outermost block of this thread.
  void begin_block();
  // In place of its release.
  void keep(BlockStream& stream, size_t block);

 private:
  explicit BatchSchedule(size_t bodies) : waiting_for_(bodies) {}
  void take_turn(std::unique_lock<std::mutex>& lock);
  void give_turn();
  void leave(bool has_turn);
  void end_step();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_taken_ = false;  // somebody computes
  size_t waiting_for_;     // bodies that have not ended
  size_t arrived_ = 0;     // of them, before their next blocks
  uint64_t step_ = 0;
  std::vector<std::pair<BlockStream*, size_t>> kept_;
};

}  // namespace accel::bigmodel
