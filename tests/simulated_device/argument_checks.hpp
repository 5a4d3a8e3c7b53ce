// SPDX-License-Identifier: Apache-2.0
// What the operators of a device refuse among their arguments, as CUDA's do.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace simulated_device {

// The device of the tensors; none if there is none on this kind of device. Refuses tensors of several devices, and of
// the CPU where the operator takes none: most do not even take a tensor that is one number.
std::optional<c10::Device> common_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// A fused optimizer's kernels go through the memory of parameters, gradients and states in its order, and count in
// float32. Does nothing for other operators.
void check_fused_optimizer(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace simulated_device
