// SPDX-License-Identifier: Apache-2.0
// LibTorch's libraries of accelerators, libtorch_cuda.so and its like. They lie beside the libtorch_cpu.so of the
// process and are loaded where there is a driver.
//
// LibTorch decides once in a process whether it has a kind of accelerator: when it is first asked for the kind's hooks,
// which a seed, page-locked memory, a convolution, the first backward and at::getAccelerator() do. A library that is
// loaded later never works whole. So LibTorch's own first question loads the library.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>

#include "tensor/device/device_kind.hpp"

namespace accel::tensor {

// From now on LibTorch's first question for a kind loads the kind's library. It costs microseconds and loads nothing
// itself.
void load_accelerators_on_demand();

// While it lives, something in this process has chosen the CPU: LibTorch's questions load nothing, and
// load_accelerator() still does.
class HostChoice {
 public:
  HostChoice();
  ~HostChoice();
  HostChoice(const HostChoice&) = delete;
  HostChoice& operator=(const HostChoice&) = delete;
};

// Whether there is one, or ACCELERATE_TORCH_DEVICE or else ACCELERATE_USE_CPU chooses the CPU, also before there is a
// state.
bool host_is_chosen();

// Loads the library of a kind if there is a driver; does nothing for a kind without a library.
void load_accelerator(DeviceKind kind);

// LibTorch's interface to the devices of a kind; null if nothing is loaded that has one.
const c10::impl::DeviceGuardImplInterface* find_guard(DeviceKind kind);

// Whether the kind is one of LibTorch's own, which needs no plugin.
bool is_built_in(DeviceKind kind);

// Why devices of a kind of LibTorch's own cannot be used although LibTorch may list them, as one line; empty if they
// can.
std::string accelerator_obstacle(DeviceKind kind);

// Drivers of accelerators that this process cannot use, and why, as one line; empty if there are none. A driver whose
// devices are hidden by a variable is not one of them.
std::string unused_drivers();

}  // namespace accel::tensor
