// SPDX-License-Identifier: Apache-2.0
// Casts of the operands of linear layers to 8 bits, on any device, and the product of two of them. On the CPU they are
// kernels, elsewhere operators of LibTorch that compute the same; the host waits for no device.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "kernels/fp8/fp8_matmul.hpp"
#include "kernels/fp8/fp8_values.hpp"

namespace accel::nn {

struct Fp8Cast {
  at::ScalarType format = at::kFloat8_e4m3fn;
  kernels::Fp8Granularity granularity = kernels::Fp8Granularity::kTensor;
  int64_t margin = 0;  // scales are divided by 2^margin
};

// The scale of an operand from former steps, and its largest magnitude since then; float32, [1], on its device.
struct DelayedScale {
  at::Tensor scale;  // 0: none yet, so that it comes from the operand itself; undefined: it always does
  at::Tensor magnitude;
};

// Counts the numbers that became the largest one of their format. Any thread.
class Fp8Overflows {
 public:
  void add(int64_t count) { on_host_ += count; }
  void add(const at::Tensor& count);  // of a device
  int64_t total() const;              // waits for the device

 private:
  std::atomic<int64_t> on_host_{0};
  mutable std::mutex mutex_;
  at::Tensor on_device_;
};

// A matrix in 8 bits, with scales of its rows where there are several. `of_columns`: the transposed matrix, with scales
// of the columns that were. Only scales of whole operands are delayed.
kernels::Fp8Matrix fp8_cast(const at::Tensor& matrix, const Fp8Cast& cast, bool of_columns, const DelayedScale& delayed,
                            Fp8Overflows& overflows);

// The transposed matrix, of one with one scale.
kernels::Fp8Matrix transposed(const kernels::Fp8Matrix& matrix);

// The numbers of a matrix with scales of its rows or a single one, in float32, bfloat16 or float16.
at::Tensor fp8_numbers(const kernels::Fp8Matrix& matrix, at::ScalarType dtype);

// first * second^T of matrices [rows, inner] and [columns, inner], plus `bias` [columns] where it is defined. Sums are
// float32 and rounded once, to `dtype`.
at::Tensor fp8_product(const kernels::Fp8Matrix& first, const kernels::Fp8Matrix& second, const at::Tensor& bias,
                       at::ScalarType dtype);

}  // namespace accel::nn
