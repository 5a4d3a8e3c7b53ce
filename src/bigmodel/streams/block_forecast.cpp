#include "bigmodel/streams/block_forecast.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace accel::bigmodel {
namespace {

// Pages of mapped files are not memory of the process, so more of them may come ahead.
constexpr int64_t kReadAheadBytes = int64_t{256} << 20;
constexpr size_t kMostBlocksAhead = 64;

}  // namespace

bool can_be_used_in_place(const Block& block, c10::Device device) {
  return device.is_cpu() && std::all_of(block.tensors.begin(), block.tensors.end(), [](const auto& tensor) {
           return tensor->source().scalar_type() == tensor->dtype();
         });
}

BlockForecast::BlockForecast(const std::vector<Block>& blocks, c10::Device device, int64_t prefetch_bytes)
    : looks_ahead_(prefetch_bytes > 0), order_(blocks.size()) {
  for (const Block& block : blocks) {
    const bool in_place = can_be_used_in_place(block, device);
    blocks_.push_back({block.bytes, in_place ? std::max(prefetch_bytes, kReadAheadBytes) : prefetch_bytes});
  }
}

void BlockForecast::end_pass() {
  order_.end_pass();
  again_.reset();
}

std::vector<size_t> BlockForecast::renew(const std::function<bool(size_t block)>& is_in_use) {
  renewals_++;
  std::vector<size_t> expected;
  int64_t bytes = 0;
  for (size_t i = 0; looks_ahead_ && i < std::min(order_.pass_length(), kMostBlocksAhead); i++) {
    const size_t block = order_.upcoming(i);
    if (is_in_use(block) || expects(block)) continue;
    bytes += blocks_[block].bytes;
    if (bytes > blocks_[block].budget) break;
    blocks_[block].expected_in = renewals_;
    expected.push_back(block);
  }
  if (again_) blocks_[*again_].expected_in = renewals_;
  return expected;
}

}  // namespace accel::bigmodel
