// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/skinny_matmul.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/instruction_set.hpp"
#include "kernels/matmul/skinny_kernels.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

// Up to so many rows the product takes less time than copying or converting the matrix.
int64_t most_rows() {
  switch (fastest_instruction_set()) {
    case InstructionSet::kAvx512:
      return 32;
    case InstructionSet::kAvx2:
      return 64;
    default:
      return 0;
  }
}

constexpr int64_t kFewestElements = 1 << 16;  // of the matrix: what is smaller stays in caches
constexpr int64_t kFewestInner = 64;
// Columns are handed out in parts, so that a thread that has no processor holds up no more than its own; of a multiple
// of the columns of every kernel's tile.
constexpr int64_t kElementsATask = 1 << 15, kColumnsTogether = 12;

int64_t divided_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

bool is_skinny(const at::Tensor& first, const at::Tensor& second) {
  const int64_t rows = first.size(0), inner = first.size(1), columns = second.size(1);
  return rows > 0 && rows <= most_rows() && inner >= kFewestInner && inner * columns >= kFewestElements &&
         first.stride(1) == 1 && second.stride(0) == 1 && second.stride(1) >= inner &&
         (rows == 1 || first.stride(0) >= inner);
}

void skinny_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result,
                   const at::Tensor& bias) {
  const int64_t rows = first.size(0), inner = first.size(1), columns = second.size(1);
  SkinnyProduct product;
  product.rows = rows;
  product.inner = inner;
  product.format = span_of(second).format;
  at::Tensor values = first;
  if (is_half(first.scalar_type())) {
    values = at::empty({rows, inner}, first.options().dtype(at::kFloat));
    auto* const arrange = ACCEL_FASTEST(arrange_skinny);
    const auto* const from = static_cast<const char*>(first.const_data_ptr());
    for (int64_t row = 0; row < rows; row++)
      arrange(from + row * first.stride(0) * first.element_size(), inner, product.format,
              values.mutable_data_ptr<float>() + row * inner);
  }
  product.first = values.const_data_ptr<float>();
  product.first_stride = values.stride(0);
  product.second = second.const_data_ptr();
  product.second_stride = second.stride(1);
  product.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  product.result = result.mutable_data_ptr();
  product.result_stride = columns;
  auto* const multiply = ACCEL_FASTEST(multiply_skinny);
  const int64_t together =
      divided_up(std::max<int64_t>(1, kElementsATask / inner), kColumnsTogether) * kColumnsTogether;
  parallel_for_each(static_cast<size_t>(divided_up(columns, together)), [&](size_t task) {
    const int64_t begin = static_cast<int64_t>(task) * together;
    multiply(product, begin, std::min(columns, begin + together));
  });
}

}  // namespace accel::kernels
