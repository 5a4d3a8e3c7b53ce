// SPDX-License-Identifier: Apache-2.0
#include "kernels/update/half_values.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kNumbersPerThread = 1 << 15;

void convert(const at::Tensor& from, const at::Tensor& to) { copy(span_of(from), span_of(to), from.numel()); }

// Whether each row is contiguous.
bool has_whole_rows(const at::Tensor& matrix) {
  return matrix.dim() == 2 && matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1);
}

void convert_rows(const at::Tensor& from, const at::Tensor& to) {
  const CopyKernel kernel = ACCEL_FASTEST(kernels)().copy;
  const ElementSpan source = span_of(from), target = span_of(to);
  const int64_t columns = from.size(1);
  const int64_t source_step = from.stride(0) * from.element_size(), target_step = to.stride(0) * to.element_size();
  parallel_for(from.size(0), std::max<int64_t>(1, kNumbersPerThread / std::max<int64_t>(1, columns)),
               [&](int64_t begin, int64_t end) {
                 ElementSpan source_row = source, target_row = target;
                 for (int64_t row = begin; row < end; ++row) {
                   source_row.data = static_cast<char*>(source.data) + row * source_step;
                   target_row.data = static_cast<char*>(target.data) + row * target_step;
                   kernel(source_row, target_row, columns, 0, num_blocks(columns), 0);
                 }
               });
}

at::Tensor converted(const at::Tensor& tensor, at::ScalarType dtype) {
  const at::TensorOptions options = tensor.options().dtype(dtype);
  const bool has_gaps = !tensor.is_non_overlapping_and_dense();
  if (has_gaps && tensor.dim() == 2) {
    const at::Tensor rows = tensor.stride(0) == 1 ? tensor.t() : tensor;
    if (has_whole_rows(rows)) {
      const at::Tensor values = at::empty(rows.sizes(), options);
      convert_rows(rows, values);
      return rows.is_same(tensor) ? values : values.t();
    }
  }
  if (has_gaps) return at::empty(tensor.sizes(), options).copy_(tensor);
  const at::Tensor values = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  convert(tensor, values);
  return values;
}

}  // namespace

at::Tensor to_float32(const at::Tensor& tensor) { return converted(tensor, at::kFloat); }

at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype) { return converted(values, dtype); }

void round_into(const at::Tensor& values, const at::Tensor& result) {
  if (values.is_non_overlapping_and_dense() && values.strides() == result.strides())
    convert(values, result);
  else
    result.copy_(values);
}

}  // namespace accel::kernels
