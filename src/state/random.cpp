// SPDX-License-Identifier: Apache-2.0
#include "state/random.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/split_text.hpp"
#include "tensor/device/accelerator_library.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_plugins.hpp"
#include "tensor/device/generator.hpp"

namespace accel::state {
namespace {

at::Generator generator_of(const std::string& type, c10::Device device, const at::Generator& generator) {
  if (type == "generator") return generator;
  return tensor::default_generator(type == "torch" ? c10::Device(c10::kCPU) : device);
}

// The latest seed of the process, and the accelerator that got it.
struct LastSeed {
  std::mutex mutex;
  std::optional<uint64_t> seed;
  std::optional<c10::DeviceType> accelerator;
};

LastSeed& last_seed() {
  static LastSeed& last = *std::make_unique<LastSeed>().release();  // never destroyed
  return last;
}

void seed_accelerators(c10::DeviceType type, uint64_t seed) {
  const int64_t count = tensor::device_count(tensor::device_kind(c10::Device(type)));
  for (int64_t index = 0; index < count; index++) {
    const c10::Device device(type, static_cast<c10::DeviceIndex>(index));
    if (!tensor::has_default_generator(device)) {
      log(LogLevel::kWarning, "device ", device, " has no generator that could be seeded");
      return;
    }
    at::Generator generator = tensor::default_generator(device);
    tensor::set_seed(generator, seed);
  }
}

}  // namespace

void set_seed_of_default_generators(uint64_t seed) {
  at::Generator cpu = tensor::default_generator(c10::DeviceType::CPU);
  tensor::set_seed(cpu, seed);
  tensor::load_device_plugins_of_environment();
  const auto accelerator = tensor::host_is_chosen() ? tensor::loaded_accelerator() : tensor::default_accelerator();
  if (accelerator) seed_accelerators(accelerator->type(), seed);
  const std::lock_guard<std::mutex> lock(last_seed().mutex);
  last_seed().seed = seed;
  last_seed().accelerator = accelerator ? std::optional(accelerator->type()) : std::nullopt;
}

void seed_late_accelerator(c10::Device device) {
  const std::lock_guard<std::mutex> lock(last_seed().mutex);
  if (device.is_cpu() || !last_seed().seed || last_seed().accelerator == device.type()) return;
  seed_accelerators(device.type(), *last_seed().seed);
  last_seed().accelerator = device.type();
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
    at::Tensor state = tensor::generator_state(synchronized).to(communicator.device());
    communicator.broadcast(state, /*from=*/0);
    tensor::set_generator_state(synchronized, state.cpu());
  }
}

}  // namespace accel::state
