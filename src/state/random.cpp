#include "state/random.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "tensor/device.hpp"

namespace accel::state {
namespace {

at::Generator generator_of(const std::string& type, c10::Device device, const at::Generator& generator) {
  if (type == "generator") return generator;
  return default_generator(type == "torch" ? c10::Device(c10::kCPU) : device);
}

}  // namespace

at::Generator default_generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

at::Generator new_generator(uint64_t seed, c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  require(device.is_cuda(), Status::kUnsupported, "device ", device,
          " draws no random numbers; expected the CPU or a CUDA device");
  tensor::require_device(device);
  at::Generator generator = at::globalContext()
                                .getAcceleratorHooksInterface(device.type())
                                .getNewGenerator(device.has_index() ? device.index() : c10::DeviceIndex(0));
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

void use_deterministic_algorithms() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }

void check_rng_types(const std::string& types, c10::Device device, bool has_generator) {
  for (const std::string& type : split_text(types)) {
    if (type != "mps") tensor::refuse_unsupported_device(type);  // Accelerate has no generators of that name
    require(type == "torch" || type == "cuda" || type == "generator", Status::kInvalidArgument, "rng_types has '", type,
            "'; expected torch, cuda or generator, joined by commas");
    require(type != "cuda" || device.is_cuda(), Status::kUnsupported, "rng_types has 'cuda' and the state's device is ",
            device, "; expected torch");
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
