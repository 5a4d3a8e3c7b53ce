// SPDX-License-Identifier: Apache-2.0
// Stands for libtorch_cuda.so on machines without CUDA: registers hooks, and a guard for as many devices as
// STAND_IN_DEVICES says, which compute nothing.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <string>

namespace {

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs /*arguments*/) {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return device_count() > 0; }

  static int device_count() {
    const char* const devices = std::getenv("STAND_IN_DEVICES");
    return devices == nullptr ? 1 : std::atoi(devices);
  }
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(Hooks::device_count());
  }
};

// Not by LibTorch's macros, whose objects have destructors: nothing of a library that stays loaded is destroyed.
[[maybe_unused]] const bool registered = [] {
  at::CUDAHooksRegistry()->Register("CUDAHooks",
                                    [](at::CUDAHooksArgs arguments) -> std::unique_ptr<at::CUDAHooksInterface> {
                                      return std::make_unique<Hooks>(arguments);
                                    });
  static const Guard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].store(&guard);
  return true;
}();

}  // namespace
