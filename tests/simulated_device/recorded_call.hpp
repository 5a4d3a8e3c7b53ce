// SPDX-License-Identifier: Apache-2.0
// A call of an operator that is made again, with the same tensors: what they hold is read then.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "host_fallback.hpp"

namespace simulated_device {

// `arguments` as the operator got them; `results` are the tensors of the device that it returned or wrote, on the host:
// the new ones in the order of the schema, and those that it wrote in the order of the arguments.
std::function<void()> recorded_call(const c10::OperatorHandle& op, HostKernel on_host, c10::DeviceIndex device,
                                    const std::vector<c10::IValue>& arguments, std::vector<at::Tensor> results);

// Throws for an operator whose results the host must know at once: numbers, and tensors whose size depends on values.
void require_recordable(const c10::OperatorHandle& op);

}  // namespace simulated_device
