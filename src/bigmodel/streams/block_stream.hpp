// SPDX-License-Identifier: Apache-2.0
// Block stream: brings blocks to the device that computes with them, ahead of their use, within a budget of memory. It
// executes the actions of the schedule (parallel/schedule/streaming_schedule.hpp): a thread of its own loads, while the
// present block computes.
//
// Note: memory of blocks. On the CPU, weights that have their dtype in a mapped file are used in place: such a block
// needs no memory, and bringing it is reading ahead. Other blocks get a buffer. Buffers are used again, after the
// device has done what used them before; one that something else holds, such as a graph, is left to that.
#pragma once

#include <c10/core/Device.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bigmodel/streams/block.hpp"
#include "bigmodel/streams/block_buffers.hpp"
#include "bigmodel/streams/block_memory.hpp"
#include "parallel/schedule/streaming_schedule.hpp"

namespace accel::bigmodel {

class BlockStream {
 public:
  BlockStream(std::vector<Block> blocks, c10::Device device, int64_t prefetch_bytes);
  ~BlockStream();
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

  const std::vector<Block>& blocks() const { return blocks_; }

  // The tensors of the block have their values from acquire() to the release() that ends its last use. Waits for them;
  // an error in bringing them is thrown, and the block is not in use then.
  void acquire(size_t block);
  void release(size_t block) noexcept;
  // The forward of the model has ended.
  void end_pass();

  // Whether its weights are used where they are.
  bool is_in_place(size_t block) const { return entries_[block].in_place; }
  // Whether the memory of a tensor belongs to the block, which is in use.
  bool contains(size_t block, const at::Tensor& tensor) const;
  // For a backward: the block's memory again, as long as the result is held. Null if blocks are used in place.
  std::shared_ptr<const FilledBuffer> bring_again(size_t block);

  struct Statistics {
    int64_t passes = 0;
    int64_t brought_bytes = 0;
    int64_t peak_bytes = 0;  // of buffers
    double wait_seconds = 0;
  };
  Statistics statistics() const;

 private:
  enum class Place : uint8_t { kAway, kComing, kHere };
  struct Entry {
    bool in_place = false;
    bool is_shown = false;
    Place place = Place::kAway;
    std::shared_ptr<FilledBuffer> filled;  // while it is here, unless it is used in place
    std::exception_ptr failure;
  };

  void run();
  void bring(size_t block, std::unique_lock<std::mutex>& lock);
  // The actions, under the mutex, which only kLoad gives up while it waits.
  void execute(const parallel::StreamingActions& actions, std::unique_lock<std::mutex>& lock);
  void load(size_t block, std::unique_lock<std::mutex>& lock);
  void request(size_t block, bool at_once);
  void show(size_t block);
  void hide(size_t block);
  void unload(size_t block);

  const std::vector<Block> blocks_;
  const c10::Device device_;
  BlockUploader uploader_;  // of the thread, but for mark()

  mutable std::mutex mutex_;  // for all below
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  parallel::StreamingSchedule schedule_;
  std::deque<size_t> requests_;
  BlockBuffers buffers_;
  Statistics statistics_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace accel::bigmodel
