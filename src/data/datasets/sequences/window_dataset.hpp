// SPDX-License-Identifier: Apache-2.0
// Windows over tokens, or over the bytes of text files for models that read bytes.
#pragma once

#include <memory>
#include <utility>

#include "data/datasets/sequences/sequence_dataset.hpp"
#include "data/datasets/sequences/token_source.hpp"

namespace accel::data {

// Item i is a list of two int64 tensors [sequence_length]: the tokens from i * stride on, and the same shifted by one.
// Tokens at the end that fill no window are left out.
class WindowDataset final : public SequenceDataset {
 public:
  WindowDataset(std::shared_ptr<const TokenSource> tokens, int64_t sequence_length, int64_t stride);
  WindowDataset(std::shared_ptr<const TokenSource> tokens, int64_t sequence_length)
      : WindowDataset(std::move(tokens), sequence_length, sequence_length) {}
  int64_t length() const override { return length_; }

 protected:
  void write(int64_t index, const Columns& columns) const override;

 private:
  std::shared_ptr<const TokenSource> tokens_;
  int64_t stride_;
  int64_t length_;
};

}  // namespace accel::data
