#include "nn/low_precision/fp8_linear.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/fp8/fp8_matmul.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "nn/second_derivative.hpp"
#include "precision/autocast.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/plain_operators.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

using kernels::Fp8Matrix;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

struct Formats {
  at::ScalarType operands, gradients;
};

Formats parse_formats(std::string_view name) {
  if (name == "HYBRID") return {at::kFloat8_e4m3fn, at::kFloat8_e5m2};
  if (name == "E4M3") return {at::kFloat8_e4m3fn, at::kFloat8_e4m3fn};
  if (name == "E5M2") return {at::kFloat8_e5m2, at::kFloat8_e5m2};
  fail(Status::kInvalidArgument, "format is \"", name, "\"; expected \"HYBRID\", \"E4M3\" or \"E5M2\"");
}

// A contiguous matrix and the factor that gives back its numbers, on its device. The host waits for no device.
Fp8Matrix quantize(const at::Tensor& matrix, at::ScalarType format) {
  if (matrix.is_cpu()) return kernels::quantize(matrix, format, kernels::Fp8Granularity::kTensor);
  const float largest = kernels::largest_of(format);
  const auto options = matrix.options().dtype(at::kFloat);
  if (matrix.numel() == 0) return {matrix.to(format), at::full({1}, 1.0f, options)};
  const at::Tensor magnitude = matrix.abs().amax().to(at::kFloat).reshape({1});
  const at::Tensor wanted = largest / magnitude;
  const at::Tensor scale = at::where(wanted.isfinite().logical_and_(wanted.gt(0)), wanted, 1.0f);
  return {matrix.to(at::kFloat).mul_(scale).clamp_(-largest, largest).to(format), scale.reciprocal()};
}

// Whether LibTorch has a kernel for products of 8-bit numbers on the device.
bool has_scaled_product(c10::Device device) {
  static const auto scaled_product = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_scaled_mm", "");
  return scaled_product.hasKernelForDispatchKey(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
}

// first * second + bias, which may be undefined.
at::Tensor product(const Fp8Matrix& first, const Fp8Matrix& second, const at::Tensor& bias, at::ScalarType dtype) {
  const std::vector<int64_t> sizes = {first.values.size(0), second.values.size(1)};
  if (first.values.is_cpu()) {
    at::Tensor result = at::empty(sizes, first.values.options().dtype(dtype));
    kernels::fp8_matmul(first, second, bias, result);
    return result;
  }
  // Tensor cores read the first matrix by rows and the second by columns, of whole 16 bytes.
  const auto is_whole = [](int64_t size) { return size > 0 && size % 16 == 0; };
  if (has_scaled_product(first.values.device()) && is_whole(first.values.size(1)) && is_whole(sizes[1])) {
    const at::Tensor sums = at::_scaled_mm(first.values.contiguous(), second.values.t().contiguous().t(), first.scales,
                                           second.scales, {}, {}, dtype);
    return bias.defined() ? sums + bias.to(dtype) : sums;
  }
  at::Tensor sums =
      at::mm(first.values.to(at::kFloat), second.values.to(at::kFloat)).mul_(first.scales * second.scales);
  if (bias.defined()) sums.add_(bias);
  return sums.to(dtype);
}

at::Tensor contiguous_rows(const at::Tensor& tensor) {
  const int64_t features = tensor.size(-1);
  return tensor
      .reshape({features == 0 ? c10::multiply_integers(tensor.sizes().slice(0, tensor.dim() - 1)) : -1, features})
      .contiguous();
}

struct SavedMatrix {
  void save(const Fp8Matrix& matrix) {
    values = SavedVariable(matrix.values, false);
    scales = matrix.scales;
  }
  Fp8Matrix unpack() const { return {values.unpack(), scales}; }

  SavedVariable values;
  at::Tensor scales;
};

class Fp8LinearBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "Fp8LinearBackward"; }

  variable_list apply(variable_list&& arriving) override {
    variable_list leaving(3);
    if (!arriving[0].defined()) return leaving;
    const bool needs_input = task_should_compute_output(0), needs_weight = task_should_compute_output(1);
    {
      const tensor::PlainOperators plain;
      const at::Tensor rows = contiguous_rows(arriving[0]);
      if (needs_input || needs_weight) {
        const Fp8Matrix gradient = quantize(rows, format);
        if (needs_input) leaving[0] = product(gradient, weight.unpack(), {}, input_dtype).view(input_sizes);
        if (needs_weight)
          leaving[1] = product({gradient.values.t(), gradient.scales}, input.unpack(), {}, weight_dtype);
      }
      if (task_should_compute_output(2)) leaving[2] = rows.sum(0, false, at::kFloat).to(bias_dtype);
    }
    refuse_second_derivative(leaving, "accel::fp8_linear has no second derivative; use aten::linear for it",
                             next_edges());
    return leaving;
  }

  void release_variables() override {
    for (SavedMatrix* saved : {&input, &weight}) saved->values.reset_data();
  }

  SavedMatrix input, weight;
  at::ScalarType format = at::kFloat8_e5m2;
  std::vector<int64_t> input_sizes;
  at::ScalarType input_dtype = at::kFloat, weight_dtype = at::kFloat, bias_dtype = at::kFloat;
};

bool is_computed(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

void check_arguments(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  require(weight.dim() == 2 && input.dim() >= 1 && input.size(-1) == weight.size(1), Status::kShapeMismatch,
          "input has shape ", input.sizes(), " and weight ", weight.sizes(),
          "; expected [..., features] and [outputs, features]");
  require(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)), Status::kShapeMismatch,
          "bias has shape ", bias.defined() ? bias.sizes() : at::IntArrayRef(), " and weight ", weight.sizes(),
          "; expected a number for each output");
  for (const auto& [value, name] :
       {std::pair(&input, "input"), std::pair(&weight, "weight"), std::pair(&bias, "bias")}) {
    if (!value->defined()) continue;
    require(is_computed(*value), Status::kTypeMismatch, name, " is ", tensor::dtype_name(value->scalar_type()),
            "; expected float32, bfloat16 or float16");
    require(value->device() == input.device(), Status::kInvalidArgument, name, " is on ", value->device().str(),
            " and input on ", input.device().str(), "; expected one device");
  }
}

}  // namespace

at::Tensor fp8_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      std::string_view format) {
  const Formats formats = parse_formats(format);
  const at::Tensor own_bias = bias.value_or(at::Tensor());
  check_arguments(input, weight, own_bias);
  const at::ScalarType dtype = precision::autocast_dtype(input.device().type()).value_or(input.scalar_type());
  Fp8Matrix rows, columns;
  at::Tensor output;
  {
    const tensor::PlainOperators plain;
    rows = quantize(contiguous_rows(input), formats.operands);
    columns = quantize(weight.contiguous(), formats.operands);
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = weight.size(0);
    output = product(rows, {columns.values.t(), columns.scales}, own_bias, dtype).view(sizes);
  }
  if (!torch::autograd::compute_requires_grad(input, weight, own_bias)) return output;
  const auto node =
      tensor::make_autograd_node<Fp8LinearBackward>(torch::autograd::collect_next_edges(input, weight, own_bias));
  if (weight.requires_grad()) node->input.save(rows);
  if (input.requires_grad()) node->weight.save(columns);
  node->format = formats.gradients;
  node->input_sizes = input.sizes().vec();
  node->input_dtype = input.scalar_type();
  node->weight_dtype = weight.scalar_type();
  if (own_bias.defined()) node->bias_dtype = own_bias.scalar_type();
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace accel::nn
