// SPDX-License-Identifier: Apache-2.0
// Streaming schedule: when the weights of each block of a streamed model are loaded and unloaded, as lists of actions.
// The schedule follows from the order in which blocks are used and a budget of memory, and has no tensors: a stream of
// offloaded blocks executes the actions.
//
// Note: blocks that come ahead. While a block is used, those that are expected next (nn/call_order.hpp) are loaded.
// Weights that are loaded or on their way and not in use yet take up to prefetch_bytes; a block that is needed at once
// comes whatever the budget. A block that is neither in use nor expected is unloaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "nn/call_order.hpp"

namespace accel::parallel {

struct StreamingAction {
  enum class Kind : uint8_t {
    kStartLoad,  // starts to load the block's weights, unless they are there or on their way
    kLoad,       // loads them, or waits for what was started
    kShow,       // gives them to the block's module, unless it has them
    kRelease,    // takes them from the module
    kUnload,     // gives their memory back
  };
  Kind kind;
  size_t block;
};
using StreamingActions = std::vector<StreamingAction>;

struct StreamedBlock {
  int64_t bytes = 0;
  // Its weights are used in the memory of mapped files: kStartLoad reads ahead, and kLoad and kUnload do not happen.
  bool in_place = false;
};

class StreamingSchedule {
 public:
  // The first pass is expected in the order of the blocks. Without `prefetch_bytes` no block comes ahead.
  StreamingSchedule(const std::vector<StreamedBlock>& blocks, int64_t prefetch_bytes);

  // A use of the block begins. Uses may overlap, also of the same block.
  StreamingActions begin_use(size_t block);
  // Its actions have failed.
  void abandon_use(size_t block) { blocks_[block].uses--; }
  // A backward needs the block's weights once more. They are not in use by that, and nothing ends it.
  StreamingActions begin_backward_use(size_t block);
  // The actions behind those of a begin, which may have waited while other threads used blocks.
  StreamingActions look_ahead();
  StreamingActions end_use(size_t block);
  // The block's weights have taken their memory.
  void end_load(size_t block) { loaded_.push_back(block); }
  // The forward of the whole model has ended.
  void end_pass();

 private:
  struct Block {
    int64_t bytes;
    bool in_place;
    int64_t budget;           // of all that come before it and itself
    int64_t expected_in = 0;  // the latest forecast that expected it
    int uses = 0;
  };

  bool is_expected(size_t block) const { return blocks_[block].expected_in == forecasts_; }
  void load_ahead(StreamingActions& actions);
  void unload_others(StreamingActions& actions);

  bool looks_ahead_;
  std::vector<Block> blocks_;
  nn::CallOrder order_;
  int64_t forecasts_ = 0;
  std::optional<size_t> again_;  // the block that the latest backward needed
  std::vector<size_t> loaded_;
};

}  // namespace accel::parallel
