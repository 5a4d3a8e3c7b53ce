// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_linear.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "nn/low_precision/fp8_products.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

Fp8Scheme scheme_of(std::string_view format) {
  Fp8Scheme scheme;  // "HYBRID"
  if (format == "E4M3")
    scheme.gradients = at::kFloat8_e4m3fn;
  else if (format == "E5M2")
    scheme.operands = at::kFloat8_e5m2;
  else
    require(format == "HYBRID", Status::kInvalidArgument, "format is \"", format,
            "\"; expected \"HYBRID\", \"E4M3\" or \"E5M2\"");
  return scheme;
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
    require(is_cast_to_fp8(value->scalar_type()), Status::kTypeMismatch, name, " is ",
            tensor::dtype_name(value->scalar_type()), "; expected float32, bfloat16 or float16");
    require(value->device() == input.device(), Status::kInvalidArgument, name, " is on ", value->device().str(),
            " and input on ", input.device().str(), "; expected one device");
  }
}

}  // namespace

at::Tensor fp8_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      std::string_view format) {
  const auto layer = std::make_shared<Fp8Layer>(scheme_of(format), std::make_shared<Fp8Overflows>());
  const at::Tensor own_bias = bias.value_or(at::Tensor());
  check_arguments(input, weight, own_bias);
  return fp8_multiply(layer, input, weight, own_bias, /*output_dim=*/0);
}

}  // namespace accel::nn
