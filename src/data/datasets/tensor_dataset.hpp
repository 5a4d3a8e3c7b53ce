// Rows of tensors that lie in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "data/dataset.hpp"

namespace accel::data {

// An item is a list with one row of each tensor. The tensors' memory is shared.
class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::vector<at::Tensor> tensors);
  int64_t length() const override { return length_; }

 protected:
  c10::IValue read_item(int64_t index) const override;
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const override;

 private:
  std::vector<at::Tensor> tensors_;
  int64_t length_;
};

}  // namespace accel::data
