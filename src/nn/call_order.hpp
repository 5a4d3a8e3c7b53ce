// Call order: which blocks of a model a forward uses next. The first pass is expected in the order of registration,
// later ones as the pass before.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace accel::nn {

class CallOrder {
 public:
  explicit CallOrder(size_t blocks);
  // The first pass is expected in this order, which has each block once.
  explicit CallOrder(std::vector<size_t> expected) : blocks_(expected.size()), order_(std::move(expected)) {}

  // A block is used. Returns whether it was the one that was expected.
  bool use(size_t block);
  // The forward of the whole model has ended.
  void end_pass();

  // The block that is expected as the i-th after the latest one; behind the last of a pass comes the next pass.
  size_t upcoming(size_t i) const { return order_[(next_ + i) % order_.size()]; }
  size_t pass_length() const { return order_.size(); }
  // How many are expected before this pass ends.
  size_t left_in_pass() const {
    const bool at_end = next_ == 0 && !pass_.empty();
    return at_end ? 0 : order_.size() - next_;
  }

 private:
  size_t blocks_;
  std::vector<size_t> order_;
  std::vector<size_t> pass_;  // so far
  size_t next_ = 0;           // in order_
};

}  // namespace accel::nn
