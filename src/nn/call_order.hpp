// SPDX-License-Identifier: Apache-2.0
// Call order: records the calls of a model's blocks. It predicts which blocks a forward uses next, by the forward
// before (the first is expected in the order of registration), and which ones a backward uses next, by the reverse
// order of the forwards that it belongs to.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace accel::nn {

class CallOrder {
 public:
  explicit CallOrder(size_t blocks);
  // The first pass is expected in this order, which has each block once.
  explicit CallOrder(std::vector<size_t> expected) : first_(std::move(expected)), order_(first_) {}

  // A call of a block begins. Returns whether it was the one that was expected.
  bool use(size_t block);
  // The latest call of the block has ended.
  void end_use(size_t block);
  // The forward of the whole model has ended, or its backward. Without `keep_calls` no backward of them will come.
  void end_pass(bool keep_calls = false);

  // Forgets all passes: the next one is expected as the first.
  void forget() { *this = CallOrder(std::move(first_)); }

  // The block that is expected as the i-th after the latest one; behind the last of a pass comes the next pass.
  size_t upcoming(size_t i) const { return order_[(next_ + i) % order_.size()]; }
  size_t pass_length() const { return order_.size(); }
  // How many are expected before this pass ends.
  size_t left_in_pass() const {
    const bool at_end = next_ == 0 && calls_.size() > pass_;
    return at_end ? 0 : order_.size() - next_;
  }

  // The backward of the calls begins.
  void begin_backward() { backward_position_ = calls_.size(); }
  // The backward of the latest call of the block begins, of those whose backward has not begun.
  void use_in_backward(size_t block);
  // The blocks whose backward is expected next, at most so many.
  std::vector<size_t> upcoming_in_backward(size_t most) const;

 private:
  struct Call {
    size_t block;
    size_t end;              // of the calls within it, in calls_
    bool has_begun = false;  // its backward
  };

  std::vector<size_t> first_;  // the order of the first pass, which has each block
  std::vector<size_t> order_;
  size_t next_ = 0;               // in order_
  std::vector<Call> calls_;       // in this pass, and in former ones that were saved
  size_t pass_ = 0;               // where this pass begins in calls_
  size_t backward_position_ = 0;  // in calls_: calls before it whose backward has not begun are still to come
};

}  // namespace accel::nn
