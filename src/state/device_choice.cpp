// SPDX-License-Identifier: Apache-2.0
#include "state/device_choice.hpp"

#include <mutex>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/generated/settings/state/state.hpp"
#include "tensor/device/accelerator_library.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_plugins.hpp"
#include "tensor/device/device_threads.hpp"
#include "tensor/device/device_work.hpp"

namespace accel::state {
namespace {

c10::Device named_device(const Setting<std::string>& name) {
  try {
    const c10::Device device = tensor::parse_device(name.value);
    require(!device.is_meta(), Status::kInvalidArgument, "meta computes nothing; expected cpu or an accelerator");
    tensor::require_device(device);
    return device;
  } catch (const Error& error) {
    fail(error.status(), "torch_device is '", name.value, "' (from ", name.source, "): ", error.message());
  }
}

// Once in a process.
void warn_of_unused_drivers() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string reasons = tensor::unused_drivers();
    if (!reasons.empty())
      log(LogLevel::kWarning, reasons,
          "; this process computes on the CPU, where `cpu` or ACCELERATE_USE_CPU=1 says so "
          "without this warning");
  });
}

}  // namespace

bool names_device(const StateSettings& settings) { return settings.cpu || !settings.torch_device.value.empty(); }

c10::Device choose_device(const StateSettings& settings) {
  tensor::load_device_plugins(settings.device_plugins.value, settings.device_plugins.source);
  const bool chooses_itself = !names_device(settings);
  c10::Device device(c10::DeviceType::CPU);
  if (!settings.torch_device.value.empty())
    device = named_device(settings.torch_device);
  else if (chooses_itself)
    device = tensor::default_accelerator().value_or(device);
  if (device.is_cpu()) {
    if (chooses_itself && *settings.local_process_index == 0) warn_of_unused_drivers();
    return device;
  }
  if (!device.has_index()) {
    const int64_t count = tensor::device_count(tensor::device_kind(device));
    device.set_index(static_cast<c10::DeviceIndex>(*settings.local_process_index % count));
  }
  tensor::set_current_device(device);
  tensor::start_device_threads();
  return device;
}

}  // namespace accel::state
