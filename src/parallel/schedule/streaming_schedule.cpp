// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/streaming_schedule.hpp"

#include <algorithm>
#include <utility>

namespace accel::parallel {

namespace {

// Pages of mapped files are not memory of the process, so more of them may come ahead.
constexpr int64_t kReadAheadBytes = int64_t{256} << 20;
constexpr size_t kMostBlocksAhead = 64;

}  // namespace

StreamingSchedule::StreamingSchedule(const std::vector<StreamedBlock>& blocks, int64_t prefetch_bytes)
    : looks_ahead_(prefetch_bytes > 0), order_(blocks.size()) {
  for (const StreamedBlock& block : blocks) {
    const int64_t budget = block.in_place ? std::max(prefetch_bytes, kReadAheadBytes) : prefetch_bytes;
    blocks_.push_back({block.bytes, block.in_place, budget});
  }
}

StreamingActions StreamingSchedule::begin_use(size_t block) {
  if (++blocks_[block].uses == 1) order_.use(block);
  StreamingActions actions;
  if (!blocks_[block].in_place) actions.push_back({StreamingAction::Kind::kLoad, block});
  actions.push_back({StreamingAction::Kind::kShow, block});
  return actions;
}

StreamingActions StreamingSchedule::begin_backward_use(size_t block) {
  if (blocks_[block].in_place) return {};
  again_ = block;
  return {{StreamingAction::Kind::kLoad, block}};
}

StreamingActions StreamingSchedule::look_ahead() {
  StreamingActions actions;
  load_ahead(actions);
  unload_others(actions);
  return actions;
}

StreamingActions StreamingSchedule::end_use(size_t block) {
  if (--blocks_[block].uses > 0) return {};
  StreamingActions actions{{StreamingAction::Kind::kRelease, block}};
  load_ahead(actions);
  unload_others(actions);
  return actions;
}

void StreamingSchedule::end_pass() {
  order_.end_pass();
  again_.reset();
}

void StreamingSchedule::load_ahead(StreamingActions& actions) {
  forecasts_++;
  int64_t bytes = 0;
  for (size_t i = 0; looks_ahead_ && i < std::min(order_.pass_length(), kMostBlocksAhead); i++) {
    const size_t upcoming = order_.upcoming(i);
    Block& block = blocks_[upcoming];
    if (block.uses > 0 || is_expected(upcoming)) continue;
    bytes += block.bytes;
    if (bytes > block.budget) break;
    block.expected_in = forecasts_;
    actions.push_back({StreamingAction::Kind::kStartLoad, upcoming});
  }
  if (again_) blocks_[*again_].expected_in = forecasts_;
}

void StreamingSchedule::unload_others(StreamingActions& actions) {
  std::vector<size_t> staying;
  for (const size_t block : loaded_) {
    if (blocks_[block].uses > 0 || is_expected(block))
      staying.push_back(block);
    else
      actions.push_back({StreamingAction::Kind::kUnload, block});
  }
  loaded_ = std::move(staying);
}

}  // namespace accel::parallel
