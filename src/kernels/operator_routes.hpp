// Where routes stand in LibTorch's dispatcher: before the kernels of the device, and after autograd and autocast. The
// key is one that every call passes; its own kernels choose the device of factories, and what is routed has none there.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace accel::kernels {

// What a route redispatches to.
inline constexpr c10::DispatchKeySet kBelowRoutes(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);

// Routes are registered with its impl(). Never destroyed: operators may run while the process ends.
torch::Library& operator_routes();

}  // namespace accel::kernels
