// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/coded_matrix.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <array>

#include "kernels/quantized/code_books.hpp"

namespace accel::nn {
namespace {

using kernels::WeightCode;

// The values of codes before scale and offset, in float32, [rows, columns]; for any device.
at::Tensor unscaled_values(const CodedMatrix& matrix, int64_t rows, int64_t columns) {
  const WeightCode code = matrix.format.code;
  const at::Tensor& codes = matrix.codes;
  if (code == WeightCode::kInt8) return codes.view(at::kChar).to(at::kFloat).view({rows, columns});
  if (code == WeightCode::kFloat8E4M3) return codes.view(at::kFloat8_e4m3fn).to(at::kFloat).view({rows, columns});
  if (code == WeightCode::kFloat8E5M2) return codes.view(at::kFloat8_e5m2).to(at::kFloat).view({rows, columns});
  const at::Tensor bytes = codes.reshape({rows, -1}).to(at::kInt);
  const at::Tensor halves = at::stack({bytes.floor_divide(16), bytes.remainder(16)}, -1);
  const at::Tensor numbers = halves.view({rows, -1}).narrow(1, 0, columns);
  if (code == WeightCode::kInt4) return numbers.to(at::kFloat) - (matrix.format.has_offsets ? 0 : kernels::kInt4Zero);
  const at::Tensor book = code_book(code).to(codes.device());
  return book.index_select(0, numbers.reshape(-1)).view({rows, columns});
}

}  // namespace

bool is_kernel_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

kernels::Format kernel_format(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return kernels::Format::kBFloat16;
  return dtype == at::kHalf ? kernels::Format::kHalf : kernels::Format::kFloat;
}

at::Tensor code_book(WeightCode code) {
  std::array<float, 16> values{};
  for (int i = 0; i < 16; i++)
    values[static_cast<size_t>(i)] = code == WeightCode::kNf4 ? kernels::kNf4Values[i] : kernels::fp4_value(i);
  return at::tensor(at::ArrayRef<float>(values.data(), values.size()));
}

kernels::QuantizedWeight CodedMatrix::of_kernels() const {
  kernels::QuantizedWeight weight;
  weight.format = format;
  weight.rows = is_flat ? 1 : sizes[0];
  weight.columns = is_flat ? sizes[0] * sizes[1] : sizes[1];
  weight.codes = static_cast<const uint8_t*>(codes.const_data_ptr());
  weight.scales = scales.const_data_ptr<float>();
  if (offsets.defined()) weight.offsets = offsets.const_data_ptr<float>();
  return weight;
}

at::Tensor CodedMatrix::in_stored_order(const at::Tensor& inputs) const {
  return order.defined() ? inputs.index_select(-1, order) : inputs;
}

at::Tensor CodedMatrix::in_own_order(const at::Tensor& stored) const {
  return order.defined() ? stored.index_select(-1, order.argsort()) : stored;
}

at::Tensor CodedMatrix::values_by_operators() const {
  const int64_t rows = is_flat ? 1 : sizes[0];
  const int64_t columns = is_flat ? sizes[0] * sizes[1] : sizes[1];
  const int64_t group = kernels::group_columns(format, columns);
  const int64_t groups = kernels::groups_of_row(format, columns);
  const auto of_columns = [&](const at::Tensor& of_groups) {
    const at::Tensor wide = of_groups.view({rows, groups, 1}).expand({rows, groups, group});
    return wide.reshape({rows, groups * group}).narrow(1, 0, columns);
  };
  at::Tensor values = unscaled_values(*this, rows, columns) * of_columns(scales);
  if (offsets.defined()) values = values + of_columns(offsets);
  return in_own_order(values.view(sizes));
}

at::Tensor CodedMatrix::values(at::ScalarType dtype) const {
  if (!codes.is_cpu()) return values_by_operators().to(dtype);
  if (!is_kernel_dtype(dtype)) return values(at::kFloat).to(dtype);
  const at::Tensor decoded = at::empty(sizes, at::TensorOptions().dtype(dtype));
  const kernels::QuantizedWeight weight = of_kernels();
  if (decoded.numel() > 0)
    kernels::dequantize_weight(weight, 0, weight.rows, decoded.mutable_data_ptr(), kernel_format(dtype));
  return in_own_order(decoded);
}

at::Tensor CodedMatrix::rows(const at::Tensor& indices, at::ScalarType dtype) const {
  std::vector<int64_t> shape = indices.sizes().vec();
  shape.push_back(sizes[1]);
  if (!codes.is_cpu() || is_flat || !is_kernel_dtype(dtype))
    return values(dtype).index_select(0, indices.reshape(-1)).view(shape);
  const at::Tensor chosen = indices.reshape(-1).to(at::kLong).contiguous();
  const at::Tensor found = at::empty(shape, at::TensorOptions().dtype(dtype));
  const kernels::QuantizedWeight weight = of_kernels();
  const auto row_bytes = sizes[1] * static_cast<int64_t>(found.element_size());
  const int64_t* const row_of = chosen.const_data_ptr<int64_t>();
  auto* const out = static_cast<char*>(found.mutable_data_ptr());
  for (int64_t i = 0; i < chosen.numel(); i++)
    kernels::dequantize_weight(weight, row_of[i], 1, out + i * row_bytes, kernel_format(dtype));
  return in_own_order(found);
}

}  // namespace accel::nn
