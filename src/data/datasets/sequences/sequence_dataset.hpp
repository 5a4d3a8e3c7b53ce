// SPDX-License-Identifier: Apache-2.0
// Sequences of one length for language models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "data/dataset.hpp"

namespace accel::data {

// An item is a list of int64 tensors [sequence_length]: input and target, and for documents that share a sequence
// position ids and document ids.
class SequenceDataset : public Dataset {
 protected:
  static constexpr size_t kMostColumns = 4;
  using Columns = std::array<int64_t*, kMostColumns>;

  SequenceDataset(int64_t sequence_length, size_t columns);
  int64_t sequence_length() const { return sequence_length_; }
  // Writes one sequence, each of its columns straight into the batch.
  virtual void write(int64_t index, const Columns& columns) const = 0;

  c10::IValue read_item(int64_t index) const final;
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const final;

 private:
  int64_t sequence_length_;
  size_t columns_;
};

}  // namespace accel::data
