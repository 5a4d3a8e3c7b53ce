// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/window_dataset.hpp"

#include <utility>

#include "base/error.hpp"

namespace accel::data {

WindowDataset::WindowDataset(std::shared_ptr<const TokenSource> tokens, int64_t sequence_length, int64_t stride)
    : SequenceDataset(sequence_length, 2), tokens_(std::move(tokens)), stride_(stride) {
  require(stride >= 1, Status::kInvalidArgument, "stride is ", stride, "; expected at least 1");
  require(tokens_->size() > sequence_length, Status::kInvalidArgument, tokens_->description(), "; expected at least ",
          sequence_length + 1, " for one window of ", sequence_length);
  length_ = (tokens_->size() - 1 - sequence_length) / stride_ + 1;
}

void WindowDataset::write(int64_t index, const Columns& columns) const {
  tokens_->read(index * stride_, sequence_length(), columns[0]);
  tokens_->read(index * stride_ + 1, sequence_length(), columns[1]);
}

}  // namespace accel::data
