// SPDX-License-Identifier: Apache-2.0
// How far what a device computes may be from what the CPU computes, by the dtype that it is computed in; the table for
// Python is devices/tolerances.py. Devices whose kernels are the CPU's have the same bits.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>

namespace accel::tests {

// Of each number, relative to the larger of 1 and its size.
inline double tolerance(c10::ScalarType computed_in) {
  switch (computed_in) {
    case c10::ScalarType::Double:
      return 1e-12;
    case c10::ScalarType::Float:  // sums in another order and fused multiply-adds; TF32 is off unless it is asked for
      return 1e-5;
    case c10::ScalarType::Half:  // a device rounds where another one has a fused kernel, and errors grow with the steps
    case c10::ScalarType::BFloat16:
      return 5e-2;
    default:  // whole numbers
      return 0;
  }
}

// The largest difference in units of the tolerance's relative size; infinite for other shapes, and for a NaN on one
// side.
inline double difference(const at::Tensor& found, const at::Tensor& expected) {
  if (found.sizes() != expected.sizes()) return INFINITY;
  if (found.numel() == 0) return 0;
  const at::Tensor mine = found.to(at::kDouble), other = expected.to(at::kDouble);
  const at::Tensor apart = (mine - other).abs() / other.abs().clamp_min(1);
  const at::Tensor same = mine.eq(other).logical_or(mine.isnan().logical_and(other.isnan()));
  const double largest = apart.masked_fill(same, 0).max().item<double>();
  return std::isnan(largest) ? INFINITY : largest;
}

}  // namespace accel::tests
