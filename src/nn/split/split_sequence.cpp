// SPDX-License-Identifier: Apache-2.0
#include "nn/split/split_sequence.hpp"

#include <ATen/ops/arange.h>

#include <utility>

#include "base/error.hpp"

namespace accel::nn {
namespace {

thread_local const SplitSequence::Scope* innermost = nullptr;

}  // namespace

SplitSequence::Scope::Scope(std::shared_ptr<const SplitSequence> split) : split_(std::move(split)), outer_(innermost) {
  innermost = this;
}

SplitSequence::Scope::~Scope() { innermost = outer_; }

std::shared_ptr<const SplitSequence> SplitSequence::current() {
  return innermost == nullptr ? nullptr : innermost->split_;
}

at::Tensor sequence_positions(int64_t begin, int64_t length, at::Device device) {
  const auto split = SplitSequence::current();
  if (split == nullptr) return at::arange(begin, begin + length, at::TensorOptions(at::kLong).device(device));
  require(begin == 0, Status::kUnsupported, "a split sequence is continued after ", begin,
          " cached positions; expected no cache");
  return split->positions(length).to(device);
}

int64_t whole_sequence_length(int64_t length) {
  const auto split = SplitSequence::current();
  return split == nullptr ? length : split->whole_length(length);
}

}  // namespace accel::nn
