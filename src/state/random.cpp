#include "state/random.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/split_text.hpp"
#include "tensor/device.hpp"
#include "tensor/device_availability.hpp"
#include "tensor/device_work.hpp"

namespace accel::state {
namespace {

// By a function of the hooks of the device, whose error in LibTorch does not name the device.
template <typename Find>
at::Generator generator_of_device(c10::Device device, Find find) {
  require(!device.is_meta(), Status::kUnsupported, "device meta draws no random numbers; expected one that computes");
  tensor::require_device(device);
  try {
    const c10::Device here = device.has_index() ? device : tensor::current_device(device.type());
    return (tensor::device_hooks(device.type()).*find)(here.index());
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "device ", device,
         " draws no random numbers: its plugin has no generators; expected cpu");
  }
}

at::Generator generator_of(const std::string& type, c10::Device device, const at::Generator& generator) {
  if (type == "generator") return generator;
  return default_generator(type == "torch" ? c10::Device(c10::kCPU) : device);
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

void set_seed_of_default_generators(uint64_t seed) {
  at::Generator cpu = default_generator(c10::DeviceType::CPU);
  set_seed(cpu, seed);
  const auto type = at::getAccelerator();
  if (!type) return;
  const int64_t count = tensor::device_count(tensor::device_kind(*type));
  for (int64_t index = 0; index < count; index++) {
    const c10::Device device(*type, static_cast<c10::DeviceIndex>(index));
    if (!has_default_generator(device)) {
      log(LogLevel::kWarning, "device ", device, " has no generator that could be seeded");
      return;
    }
    at::Generator generator = default_generator(device);
    set_seed(generator, seed);
  }
}

void use_deterministic_algorithms() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }

void check_rng_types(const std::string& types, c10::Device device, bool has_generator) {
  for (const std::string& type : split_text(types)) {
    const auto kind = tensor::find_device_kind(type);
    const bool is_accelerator = kind && *kind != tensor::DeviceKind::kCpu && *kind != tensor::DeviceKind::kMeta;
    require(type == "torch" || type == "generator" || is_accelerator, Status::kInvalidArgument, "rng_types has '", type,
            "'; expected torch, generator or the kind of the state's device, joined by commas");
    require(!is_accelerator || *kind == tensor::device_kind(device), Status::kUnsupported, "rng_types has '", type,
            "' and the state's device is ", device, "; expected torch", device.is_cpu() ? "" : " or ",
            device.is_cpu() ? "" : tensor::device_kind_name(tensor::device_kind(device)));
    require(type != "generator" || has_generator, Status::kInvalidArgument,
            "rng_types has 'generator', and none was given; expected a generator");
  }
}

void synchronize_rng_states(comm::Communicator& communicator, c10::Device device, const std::string& types,
                            const at::Generator& generator) {
  check_rng_types(types, device, generator.defined());
  for (const std::string& type : split_text(types)) {
    at::Generator synchronized = generator_of(type, device, generator);
    at::Tensor state = generator_state(synchronized).to(communicator.device());
    communicator.broadcast(state, /*from=*/0);
    set_generator_state(synchronized, state.cpu());
  }
}

}  // namespace accel::state
