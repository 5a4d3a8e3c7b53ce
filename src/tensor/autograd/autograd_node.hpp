// SPDX-License-Identifier: Apache-2.0
// Custom nodes in LibTorch's autograd graph.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

#include "base/torch_compat.hpp"

namespace accel::tensor {

template <typename T, typename... Arguments>
auto make_autograd_node(Arguments&&... arguments) {
#if ACCEL_TORCH_INTRUSIVE_NODES
  return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
#else
  return std::shared_ptr<T>(std::make_unique<T>(std::forward<Arguments>(arguments)...).release(),
                            torch::autograd::deleteNode);
#endif
}

}  // namespace accel::tensor
