// Block forecast: which blocks are expected next (nn/call_order.hpp) and may come ahead of their use, within a budget
// of memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bigmodel/streams/block.hpp"
#include "nn/call_order.hpp"

namespace accel::bigmodel {

// Whether the device can compute with the block's weights where they are.
bool can_be_used_in_place(const Block& block, c10::Device device);

class BlockForecast {
 public:
  BlockForecast(const std::vector<Block>& blocks, c10::Device device, int64_t prefetch_bytes);

  void use(size_t block) { order_.use(block); }
  void end_pass();
  // A backward needs the block once more.
  void expect_again(size_t block) { again_ = block; }

  // Makes the forecast new. Returns the blocks that are expected, the next one first; without those in use.
  std::vector<size_t> renew(const std::function<bool(size_t block)>& is_in_use);
  bool expects(size_t block) const { return blocks_[block].expected_in == renewals_; }

 private:
  struct Expected {
    int64_t bytes;
    int64_t budget;           // of all that come before it and itself
    int64_t expected_in = 0;  // the latest forecast that expected it
  };

  bool looks_ahead_;
  std::vector<Expected> blocks_;
  nn::CallOrder order_;
  int64_t renewals_ = 0;
  std::optional<size_t> again_;
};

}  // namespace accel::bigmodel
