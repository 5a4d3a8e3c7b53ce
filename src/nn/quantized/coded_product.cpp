// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/coded_product.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/second_derivative.hpp"
#include "precision/autocast.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/plain_operators.hpp"

namespace accel::nn {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// [count, features]
at::Tensor as_rows(const at::Tensor& tensor, at::ScalarType dtype) {
  const int64_t features = tensor.size(-1);
  const int64_t count = c10::multiply_integers(tensor.sizes().slice(0, tensor.dim() - 1));
  return tensor.to(dtype).reshape({count, features}).contiguous();
}

at::Tensor decoded_product(const CodedMatrix& matrix, const at::Tensor& rows, const at::Tensor& bias) {
  const at::Tensor columns = matrix.values(rows.scalar_type()).t();
  return bias.defined() ? at::addmm(bias, rows, columns) : at::mm(rows, columns);
}

using Multiply = void (*)(const kernels::QuantizedWeight&, const void*, int64_t, const void*, void*, kernels::Format);

at::Tensor kernel_product(const CodedMatrix& matrix, Multiply multiply, const at::Tensor& rows,
                          const at::Tensor& bias) {
  const at::Tensor output = at::empty({rows.size(0), matrix.sizes[0]}, rows.options());
  const at::Tensor ordered = matrix.in_stored_order(rows);
  const at::Tensor addend = bias.defined() ? bias.contiguous() : at::Tensor();
  multiply(matrix.of_kernels(), ordered.const_data_ptr(), ordered.size(0),
           addend.defined() ? addend.const_data_ptr() : nullptr, output.mutable_data_ptr(),
           kernel_format(rows.scalar_type()));
  return output;
}

// Columns of inputs with outliers leave the rounded product, and are multiplied as they are.
at::Tensor outlier_product(const CodedMatrix& matrix, double threshold, const at::Tensor& rows,
                           const at::Tensor& bias) {
  const at::Tensor outliers = rows.abs().amax(at::IntArrayRef({0})).ge(threshold).nonzero().view(-1);
  if (outliers.numel() == 0) return kernel_product(matrix, kernels::multiply_quantized_dynamic, rows, bias);
  const at::Tensor others = rows.index_fill(1, outliers, 0);
  const at::Tensor output = kernel_product(matrix, kernels::multiply_quantized_dynamic, others, bias);
  const at::Tensor columns = matrix.codes.view({matrix.sizes[0], -1}).index_select(1, outliers).to(at::kFloat);
  const at::Tensor weight = (columns * matrix.scales.view({-1, 1})).to(rows.scalar_type());
  return at::addmm(output, rows.index_select(1, outliers), weight.t());
}

at::Tensor multiply_rows(const CodedMatrix& matrix, const QuantizedKind& kind, const at::Tensor& rows,
                         const at::Tensor& bias) {
  const bool is_empty = rows.numel() == 0 || matrix.codes.numel() == 0;
  if (!rows.is_cpu() || matrix.is_flat || is_empty) return decoded_product(matrix, rows, bias);
  if (kind.outlier_threshold > 0) return outlier_product(matrix, kind.outlier_threshold, rows, bias);
  return kernel_product(matrix, kind.is_dynamic ? kernels::multiply_quantized_dynamic : kernels::multiply_quantized,
                        rows, bias);
}

class CodedProductBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "CodedProductBackward"; }

  variable_list apply(variable_list&& arriving) override {
    variable_list leaving(2);
    if (!arriving[0].defined()) return leaving;
    const bool needs_input = task_should_compute_output(0);
    // Codes that are offloaded come back before anything else.
    if (needs_input) matrix.codes = codes.unpack();
    {
      const tensor::PlainOperators plain;
      const at::Tensor rows = as_rows(arriving[0], dtype);
      if (needs_input) leaving[0] = at::mm(rows, matrix.values(dtype)).to(input_dtype).view(input_sizes);
      if (task_should_compute_output(1)) leaving[1] = rows.sum(0, false, at::kFloat).to(bias_dtype);
    }
    matrix.codes = at::Tensor();
    refuse_second_derivative(leaving, "a product with a quantized weight has no second derivative; expected one",
                             next_edges());
    return leaving;
  }

  void release_variables() override { codes.reset_data(); }

  CodedMatrix matrix;  // without its codes
  SavedVariable codes;
  std::vector<int64_t> input_sizes;
  at::ScalarType dtype = at::kFloat, input_dtype = at::kFloat, bias_dtype = at::kFloat;
};

}  // namespace

at::Tensor coded_product(const CodedMatrix& matrix, const QuantizedKind& kind, const at::Tensor& input,
                         const at::Tensor& bias) {
  require(input.dim() >= 1 && input.size(-1) == matrix.sizes[1], Status::kShapeMismatch, "the input is ", input.sizes(),
          " and the quantized weight ", at::IntArrayRef(matrix.sizes), "; expected [..., ", matrix.sizes[1], "]");
  require(input.is_floating_point(), Status::kTypeMismatch, "the input of a quantized layer is ", input.scalar_type(),
          "; expected a floating dtype");
  require(input.device() == matrix.codes.device(), Status::kInvalidArgument, "the input is on ", input.device(),
          " and the quantized weight on ", matrix.codes.device(), "; expected one device");
  const at::ScalarType given = precision::autocast_dtype(input.device().type()).value_or(input.scalar_type());
  at::ScalarType dtype = kind.compute_dtype.value_or(given);
  if (!is_kernel_dtype(dtype)) dtype = at::kFloat;
  const bool records = torch::autograd::compute_requires_grad(input, bias);
  at::Tensor output;
  {
    const tensor::PlainOperators plain;
    const at::Tensor addend = bias.defined() ? bias.to(dtype) : bias;
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = matrix.sizes[0];
    output = multiply_rows(matrix, kind, as_rows(input, dtype), addend).to(given).view(sizes);
  }
  if (!records) return output;
  const auto node = tensor::make_autograd_node<CodedProductBackward>(torch::autograd::collect_next_edges(input, bias));
  node->matrix = matrix;
  node->codes = SavedVariable(matrix.codes, false);
  node->matrix.codes = at::Tensor();
  node->input_sizes = input.sizes().vec();
  node->dtype = dtype;
  node->input_dtype = input.scalar_type();
  if (bias.defined()) node->bias_dtype = bias.scalar_type();
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace accel::nn
