// SPDX-License-Identifier: Apache-2.0
#include "nn/call_order.hpp"

#include <algorithm>
#include <numeric>

namespace accel::nn {
namespace {

// Parts of a model may be called for ever without the model: then nothing is learned.
constexpr size_t kMostUsesOfBlock = 64;

}  // namespace

CallOrder::CallOrder(size_t blocks) : first_(blocks) {
  std::iota(first_.begin(), first_.end(), size_t{0});
  order_ = first_;
}

bool CallOrder::use(size_t block) {
  if (calls_.size() - pass_ >= first_.size() * kMostUsesOfBlock) calls_.resize(pass_);
  calls_.push_back({block, calls_.size() + 1});
  // The first place of the block from the expected one on, around the end.
  for (size_t i = 0; i < order_.size(); i++) {
    if (upcoming(i) != block) continue;
    next_ = (next_ + i + 1) % order_.size();
    return i == 0;
  }
  return false;
}

void CallOrder::end_use(size_t block) {
  const auto is_of_block = [block](const Call& call) { return call.block == block; };
  if (const auto found = std::find_if(calls_.rbegin(), calls_.rend(), is_of_block); found != calls_.rend())
    found->end = calls_.size();
}

void CallOrder::end_pass(bool keep_calls) {
  if (calls_.size() > pass_) {
    order_.clear();
    for (size_t i = pass_; i < calls_.size(); i++) order_.push_back(calls_[i].block);
    next_ = 0;
  }
  if (!keep_calls) calls_.clear();
  pass_ = calls_.size();
}

void CallOrder::use_in_backward(size_t block) {
  const auto is_latest = [block](const Call& call) { return call.block == block && !call.has_begun; };
  const auto found = std::find_if(calls_.rbegin(), calls_.rend(), is_latest);
  if (found == calls_.rend()) return;
  found->has_begun = true;
  backward_position_ = found->end;  // those within it come next
}

std::vector<size_t> CallOrder::upcoming_in_backward(size_t most) const {
  std::vector<size_t> blocks;
  for (size_t i = std::min(backward_position_, calls_.size()); i-- > 0 && blocks.size() < most;)
    if (!calls_[i].has_begun) blocks.push_back(calls_[i].block);
  return blocks;
}

}  // namespace accel::nn
