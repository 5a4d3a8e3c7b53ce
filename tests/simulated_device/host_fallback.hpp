// SPDX-License-Identifier: Apache-2.0
// Operators of the device that compute on the host, by the kernels that LibTorch has for the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch {
class Library;
}

namespace simulated_device {

// Calls the kernel `on_host` of an operator on what stands for its arguments, the last ones of the stack, and replaces
// them by the results.
using HostKernel = void (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, HostKernel on_host);

// Whether the operator changes the tensors of an argument, or returns what it has changed.
bool writes(const c10::Argument& argument);

// For any operator that has a kernel for the CPU.
void host_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// Registers it where LibTorch would compose an operator of others although the CPU has a kernel, which makes other
// bits, and for operators on lists of tensors, which are one kernel.
void register_cpu_kernels(torch::Library& library);

}  // namespace simulated_device
