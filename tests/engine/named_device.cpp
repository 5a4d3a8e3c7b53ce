// SPDX-License-Identifier: Apache-2.0
// A device plugin that registers what plugins of vendors do and computes nothing: ACCEL_TEST_DEVICE is its name,
// ACCEL_TEST_HOOKS whether LibTorch's hooks are registered.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
constexpr auto kType = c10::DeviceType::PrivateUse1;
thread_local c10::DeviceIndex current = 0;

struct NamedDevice final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    const Device former(kType, current);
    current = device.index();
    return former;
  }
  Device getDevice() const override { return Device(kType, current); }
  void setDevice(Device device) const override { current = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 3; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, NamedDevice);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

const bool registered = [] {
  c10::register_privateuse1_backend(ACCEL_TEST_DEVICE);
  if (ACCEL_TEST_HOOKS) at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
