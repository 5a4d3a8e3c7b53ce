// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/generator.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_work.hpp"

namespace accel::tensor {
namespace {

// By a function of the hooks of the device, whose error in LibTorch does not name the device.
template <typename Find>
at::Generator generator_of_device(c10::Device device, Find find) {
  require(!device.is_meta(), Status::kUnsupported, "device meta draws no random numbers; expected one that computes");
  require_device(device);
  try {
    const c10::Device here = device.has_index() ? device : current_device(device.type());
    return (device_hooks(device.type()).*find)(here.index());
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "device ", device,
         " draws no random numbers: its plugin has no generators; expected cpu");
  }
}

}  // namespace

bool has_default_generator(c10::Device device) {
  try {
    return default_generator(device).defined();
  } catch (const Error&) {
    return false;
  }
}

at::Generator default_generator(c10::Device device) {
  if (device.is_cpu()) return at::globalContext().defaultGenerator(device);
  return generator_of_device(device, &at::AcceleratorHooksInterface::getDefaultGenerator);
}

at::Generator new_generator(uint64_t seed, c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator = generator_of_device(device, &at::AcceleratorHooksInterface::getNewGenerator);
  set_seed(generator, seed);
  return generator;
}

void set_seed(at::Generator& generator, uint64_t seed) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

at::Tensor generator_state(const at::Generator& generator) {
  at::Generator same = generator;
  const std::lock_guard<std::mutex> lock(same.mutex());
  return same.get_state();
}

void set_generator_state(at::Generator& generator, const at::Tensor& state) {
  require(state.scalar_type() == at::kByte && state.device().is_cpu(), Status::kTypeMismatch,
          "the state of a generator is of ", state.scalar_type(), " on ", state.device(),
          "; expected bytes on the CPU, as accel_generator_state() gives them");
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace accel::tensor
