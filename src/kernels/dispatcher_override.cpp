// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatcher_override.hpp"

#include <memory>

namespace accel::kernels {

torch::Library& dispatcher_overrides() {
  static torch::Library& library =
      *std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::BackendSelect, __FILE__,
                                        __LINE__)
           .release();
  return library;
}

}  // namespace accel::kernels
