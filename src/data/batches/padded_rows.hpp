// SPDX-License-Identifier: Apache-2.0
// Pads rows of different lengths into one tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace accel::data {

// Rows are filled up to the longest of their batch.
struct Padding {
  double value = 0;
  int64_t multiple_of = 1;  // lengths are rounded up to it
  bool at_start = false;    // the filling comes before the row
  bool masks = false;       // a bool tensor marks what is not filling: under "<key>_mask" in a map, elsewhere after it
};

// Makes the tensor with its filling in place. It leaves out the rows themselves: the caller writes each where row() or
// row_data() says.
class PaddedRows {
 public:
  // Row i is [lengths[i], ...row_shape].
  PaddedRows(c10::IntArrayRef lengths, c10::IntArrayRef row_shape, const at::TensorOptions& options,
             const Padding& padding);

  const at::Tensor& values() const { return values_; }  // [rows, longest, ...row_shape]
  const at::Tensor& mask() const { return mask_; }      // bool [rows, longest], or undefined
  at::Tensor row(size_t index) const;
  // On the CPU only.
  char* row_data(size_t index) const { return data_ + index * row_bytes_ + begin(index) * step_bytes_; }

 private:
  size_t begin(size_t index) const { return at_start_ ? static_cast<size_t>(longest_ - lengths_[index]) : 0; }
  void fill_around_rows(double value);
  void make_mask(const at::TensorOptions& options);

  c10::IntArrayRef lengths_;
  int64_t longest_ = 0;
  bool at_start_;
  at::Tensor values_;
  at::Tensor mask_;
  char* data_ = nullptr;
  size_t row_bytes_ = 0;
  size_t step_bytes_ = 0;
};

}  // namespace accel::data
