// SPDX-License-Identifier: Apache-2.0
// A call of a kernel of the CPU for an operator of a device.
#pragma once

#include "host_fallback.hpp"

namespace simulated_device {

// The last values of the stack are the arguments, already on the host, and the results afterwards. What is drawn at
// random comes from the device's generator.
void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, HostKernel on_host, c10::DeviceIndex device);

}  // namespace simulated_device
