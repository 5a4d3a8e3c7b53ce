// SPDX-License-Identifier: Apache-2.0
// The operator accel::fp8_linear: a linear layer whose three products are of 8-bit floating-point numbers, each operand
// with one scale that is found as it is cast (Micikevicius et al., "FP8 Formats for Deep Learning", 2022).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

namespace accel::nn {

inline constexpr const char* kFp8LinearSchema =
    "fp8_linear(Tensor input, Tensor weight, Tensor? bias=None, *, str format='HYBRID') -> Tensor";

// input * weight^T + bias of input [..., features] and weight [outputs, features]. Operands of the forward are in E4M3
// and gradients in E5M2 ("HYBRID"), or both in "E4M3" or "E5M2". The scale of an operand maps its largest magnitude to
// the largest number of the format. Sums are float32 and rounded once, to the dtype of autocast or else the input's.
// For the backward the operands are saved as they were multiplied, a byte an element.
at::Tensor fp8_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      std::string_view format);

}  // namespace accel::nn
