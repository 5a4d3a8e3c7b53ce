// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/sequence_dataset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "base/error.hpp"
#include "tensor/device/page_locked.hpp"
#include "tensor/tree.hpp"

namespace accel::data {

SequenceDataset::SequenceDataset(int64_t sequence_length, size_t columns)
    : sequence_length_(sequence_length), columns_(columns) {
  require(sequence_length >= 1, Status::kInvalidArgument, "sequence_length is ", sequence_length,
          "; expected at least 1");
}

c10::IValue SequenceDataset::read_item(int64_t index) const {
  auto item = tree::new_list();
  Columns columns{};
  for (size_t i = 0; i < columns_; ++i) {
    const at::Tensor column = at::empty({sequence_length_}, at::kLong);
    columns[i] = column.mutable_data_ptr<int64_t>();
    item.push_back(column);
  }
  write(index, columns);
  return item;
}

c10::IValue SequenceDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  // Sequences have one length: what pads has nothing to do, unless it rounds up or masks.
  if (collation.kind != Collation::Kind::kStack || indices.empty()) return Dataset::read_batch(indices, collation);
  auto batch = tree::new_list();
  Columns columns{};
  for (size_t i = 0; i < columns_; ++i) {
    const at::Tensor column = tensor::empty_on_host({static_cast<int64_t>(indices.size()), sequence_length_},
                                                    collation.batch_options(at::kLong));
    columns[i] = column.mutable_data_ptr<int64_t>();
    batch.push_back(column);
  }
  for (const int64_t index : indices) {
    write(index, columns);
    for (size_t i = 0; i < columns_; ++i) columns[i] += sequence_length_;
  }
  return batch;
}

}  // namespace accel::data
