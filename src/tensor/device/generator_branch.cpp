// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/generator_branch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "base/log.hpp"
#include "tensor/device/generator.hpp"

namespace accel::tensor {
namespace {

// FNV-1a: states that differ in one byte get seeds that have nothing in common.
uint64_t hash(const at::Tensor& state, uint64_t number) {
  uint64_t hash = 14695981039346656037U;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 1099511628211U; };
  const auto* const bytes = state.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < state.numel(); i++) add(bytes[i]);
  for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(number >> shift));
  return hash;
}

}  // namespace

GeneratorBranch::GeneratorBranch(c10::Device device, std::optional<uint64_t> number) {
  if (!number) return;
  generator_ = default_generator(device);
  const uint64_t seed = hash(generator_state(generator_), *number);
  at::empty({1}, at::TensorOptions().dtype(at::kLong).device(device)).random_(generator_);
  state_ = generator_state(generator_);
  set_seed(generator_, seed);
}

GeneratorBranch::~GeneratorBranch() {
  if (!state_.defined()) return;
  try {
    set_generator_state(generator_, state_);
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "the random stream goes on in the branch: ", error.what());
  }
}

}  // namespace accel::tensor
