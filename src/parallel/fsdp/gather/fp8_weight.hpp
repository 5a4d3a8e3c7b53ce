// SPDX-License-Identifier: Apache-2.0
// Fp8 weight: a sharded parameter that is gathered in 8-bit floating point. A rank casts its rows from their own dtype.
// Scales of rows and blocks travel with them; the scale of a whole weight follows from its largest magnitude on all
// ranks, which these have exchanged before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/fp8_gather.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"

namespace accel::parallel {

class Fp8Weight {
 public:
  // The parameter exists longer than this.
  Fp8Weight(const ShardedParameter& parameter, Fp8GatherPtr gather);

  // Each rank sends so many beside its rows, in this dtype; 0 where one scale is that of the whole weight.
  int64_t scales_per_rank() const;
  at::ScalarType scales_dtype() const;
  bool is_for_evaluation() const { return gather_->in_evaluation; }
  bool has_one_scale() const { return gather_->granularity == kernels::Fp8Granularity::kTensor; }

  // The largest magnitude of the rows of this rank, [1], as the bits of a float32: they are ordered as magnitudes are,
  // and NaN is larger than all.
  at::Tensor largest_bits() const;
  // Sets the one scale, by the largest magnitude of the whole weight.
  void set_largest_bits(const at::Tensor& bits);

  // Casts the rows of this rank to `values`, bytes with padding, and writes their scales.
  void cast_rows(const at::Tensor& values, const at::Tensor& scales) const;
  // The whole weight, from what was gathered.
  kernels::Fp8Matrix whole(const at::Tensor& values, const at::Tensor& scales) const;
  // The numbers of a matrix in the dtype of the whole parameter.
  at::Tensor numbers_of(const kernels::Fp8Matrix& matrix) const;
  // Calls Fp8Gather::given.
  void give(const kernels::Fp8Matrix& gathered) const;

 private:
  int64_t blocks() const;  // of a row

  const ShardedParameter& parameter_;
  Fp8GatherPtr gather_;
  at::Tensor scale_;   // [1], by which rows are multiplied
  at::Tensor factor_;  // [1], which gives back the numbers
};

}  // namespace accel::parallel
