// SPDX-License-Identifier: Apache-2.0
// Section 10: seeds and random generators.
#include <ATen/core/Tensor.h>

#include <memory>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/models/device.hpp"
#include "capi/values/value.hpp"
#include "state/random.hpp"
#include "tensor/device/generator.hpp"

namespace accel::capi {
namespace {

uint64_t read_seed(int64_t seed) {
  require(seed >= 0, Status::kInvalidArgument, "seed is ", seed, "; expected 0 or more");
  return static_cast<uint64_t>(seed);
}

// The one that is given, or the CPU's default one.
at::Generator generator_of(const accel_generator_t* generator) {
  if (generator == nullptr) return tensor::default_generator(c10::Device(c10::kCPU));
  return check(generator, "generator").generator;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_add_seed_callback(accel_state_t* state, accel_seed_fn seed, void* user_data,
                                                      accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_seed_fn> callback(seed, user_data, destroy);
    accelerator::Accelerator& accelerator = *check(state, "state").accelerator;
    check_pointer(seed, "seed");
    accelerator.randomness().add_seed_callback([callback](int64_t number) { callback.checked("seed", number); });
  });
}

ACCEL_FUNCTION accel_status_t accel_set_seed(accel_state_t* state, int64_t seed, int32_t device_specific,
                                             int32_t deterministic) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *check(state, "state").accelerator;
    const auto number = static_cast<int64_t>(read_seed(seed));
    const bool by_rank = read_flag(device_specific, "device_specific");
    if (read_flag(deterministic, "deterministic")) state::use_deterministic_algorithms();
    accelerator.randomness().set_seed(number, by_rank);
  });
}

ACCEL_FUNCTION accel_status_t accel_generator_create(int64_t seed, const accel_device_t* device,
                                                     accel_generator_t** out) {
  return guarded(__func__, out, [&] { return tensor::new_generator(read_seed(seed), to_device(device)); });
}

ACCEL_FUNCTION accel_generator_t* accel_generator_retain(accel_generator_t* generator) {
  return retain_handle(__func__, generator, "generator");
}

ACCEL_FUNCTION void accel_generator_release(accel_generator_t* generator) { release_handle(generator); }

ACCEL_FUNCTION accel_status_t accel_generator_set_seed(accel_generator_t* generator, int64_t seed) {
  return guarded(__func__, [&] { tensor::set_seed(check(generator, "generator").generator, read_seed(seed)); });
}

ACCEL_FUNCTION accel_status_t accel_generator_state(accel_generator_t* generator, accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const at::Generator source = generator_of(generator);
    return tensor::generator_state(source);
  });
}

ACCEL_FUNCTION accel_status_t accel_generator_set_state(accel_generator_t* generator, const accel_tensor_t* state) {
  return guarded(__func__, [&] {
    at::Generator changed = generator_of(generator);
    tensor::set_generator_state(changed, check(state, "state").tensor);
  });
}

ACCEL_FUNCTION accel_status_t accel_synchronize_rng_states(accel_state_t* state, const char* rng_types,
                                                           accel_generator_t* generator) {
  return guarded(__func__, [&] {
    const auto& engine = check(state, "state").accelerator->state();
    check_pointer(rng_types, "rng_types");
    const at::Generator given = generator == nullptr ? at::Generator() : check(generator, "generator").generator;
    state::synchronize_rng_states(*engine.communicator(), engine.device(), rng_types, given);
  });
}

}  // namespace accel::capi
