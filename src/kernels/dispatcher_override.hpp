// SPDX-License-Identifier: Apache-2.0
// Overrides of LibTorch's operators in its dispatcher. They run after autograd and autocast and before the kernels of
// the device: on the key BackendSelect, which every call passes, and on which only factory functions have kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace accel::kernels {

// An override redispatches to these.
inline constexpr c10::DispatchKeySet kBelowOverrides(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);

// Overrides are registered with its impl(). Never destroyed: operators may run while the process ends.
torch::Library& dispatcher_overrides();

}  // namespace accel::kernels
