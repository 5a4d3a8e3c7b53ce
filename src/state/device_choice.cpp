#include "state/device_choice.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "base/error.hpp"
#include "tensor/device.hpp"

namespace accel::state {
namespace {

c10::Device named_device(const Setting<std::string>& name) {
  const auto device = tensor::find_device(name.value);
  try {
    if (!device) tensor::refuse_unsupported_device(name.value);
  } catch (const Error& error) {
    fail(error.status(), "torch_device is '", name.value, "' (from ", name.source, "): ", error.message());
  }
  require(device && !device->is_meta(), Status::kInvalidArgument, "torch_device is '", name.value, "' (from ",
          name.source, "); expected cpu, cuda or cuda:N");
  return *device;
}

}  // namespace

c10::Device choose_device(const StateSettings& settings) {
  c10::Device device(c10::DeviceType::CPU);
  if (!settings.torch_device.value.empty())
    device = named_device(settings.torch_device);
  else if (!settings.cpu && tensor::device_count(tensor::DeviceKind::kCuda) > 0)
    device = c10::Device(c10::DeviceType::CUDA);
  if (device.is_cpu()) return device;
  tensor::require_device(device);
  if (!device.has_index()) {
    const int64_t count = tensor::device_count(tensor::DeviceKind::kCuda);
    device.set_index(static_cast<c10::DeviceIndex>(*settings.local_process_index % count));
  }
  c10::impl::getDeviceGuardImpl(device.type())->setDevice(device);
  return device;
}

}  // namespace accel::state
