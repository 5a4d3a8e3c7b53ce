#include "nn/call_order.hpp"

#include <numeric>
#include <utility>

namespace accel::nn {
namespace {

// Parts of a model may be called for ever without the model: then nothing is learned.
constexpr size_t kMostUsesOfBlock = 64;

}  // namespace

CallOrder::CallOrder(size_t blocks) : blocks_(blocks), order_(blocks) {
  std::iota(order_.begin(), order_.end(), size_t{0});
}

bool CallOrder::use(size_t block) {
  if (pass_.size() >= blocks_ * kMostUsesOfBlock) pass_.clear();
  pass_.push_back(block);
  // The first place of the block from the expected one on, around the end.
  for (size_t i = 0; i < order_.size(); i++) {
    if (upcoming(i) != block) continue;
    next_ = (next_ + i + 1) % order_.size();
    return i == 0;
  }
  return false;
}

void CallOrder::end_pass() {
  if (pass_.empty()) return;
  order_ = std::exchange(pass_, {});
  next_ = 0;
}

}  // namespace accel::nn
