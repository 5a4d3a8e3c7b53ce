// SPDX-License-Identifier: Apache-2.0
#include "nn/recompute/forward_state.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "nn/low_precision/fp8_layers.hpp"
#include "nn/module_walks.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// The CPU first.
std::vector<c10::Device> devices_of(const Module& module, const Inputs& inputs) {
  std::vector<c10::Device> devices{c10::Device(c10::kCPU)};
  const auto add = [&devices](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cpu() || tensor.is_meta()) return;
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) devices.push_back(tensor.device());
  };
  for (const c10::IValue& input : inputs) tree::for_each_tensor(input, add);
  for (const at::Tensor& parameter : module.parameters()) add(parameter);
  return devices;
}

// `restore` is called in every case.
template <typename Run, typename Restore>
void run_and_restore(const Run& run, const Restore& restore) {
  try {
    run();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

// A module that is trained may change its buffers, as batch normalization does.
void with_buffers(const Module& module, const std::function<void()>& forward) {
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;
  if (module.is_training())
    for (const auto& [name, buffer] : nn::named_buffers(module)) buffers.emplace_back(buffer, buffer.detach().clone());
  run_and_restore(forward, [&buffers] {
    const at::NoGradGuard without_graph;
    // Not through the buffer itself, whose version would change: autograd may have saved it.
    for (const auto& [buffer, values] : buffers) buffer.variable_data().copy_(values);
  });
}

}  // namespace

ForwardState::ForwardState(const Module& module, const Inputs& inputs, bool with_generators)
    : compute_policy_(kernels::compute_policy()),
      split_sequence_(SplitSequence::current()),
      fp8_(Fp8Layers::current()),
      adapters_(AdapterScope::current()) {
  for (const c10::Device device : devices_of(module, inputs)) {
    const auto same_type = [device](const auto& autocast) { return autocast.device == device.type(); };
    if (std::none_of(autocasts_.begin(), autocasts_.end(), same_type))
      autocasts_.push_back(precision::AutocastState::current(device.type()));
    if (!with_generators || !tensor::has_default_generator(device)) continue;
    at::Generator generator = tensor::default_generator(device);
    const at::Tensor state = tensor::generator_state(generator);
    generators_.emplace_back(std::move(generator), state);
  }
}

void ForwardState::replay(const Module& module, const std::function<void()>& forward) const {
  const at::AutoGradMode with_graph(true);
  const kernels::ComputeScope policy(compute_policy_);
  const SplitSequence::Scope split_sequence(split_sequence_);
  const Fp8Layers::Scope fp8(fp8_.lock());
  const AdapterScope adapters(adapters_);
  with_generators([&] { with_buffers(module, [&] { with_autocasts(0, forward); }); });
}

void ForwardState::with_autocasts(size_t first, const std::function<void()>& forward) const {
  if (first == autocasts_.size()) return forward();
  precision::AutocastState autocast = autocasts_[first];
  if (!precision::AutocastWeightCache::exists(autocast.weights)) autocast.weights = nullptr;
  const precision::AutocastStateScope scope(autocast);
  with_autocasts(first + 1, forward);
}

void ForwardState::with_generators(const std::function<void()>& forward) const {
  std::vector<std::pair<at::Generator, at::Tensor>> present;
  for (const auto& [generator, state] : generators_)
    present.emplace_back(generator, tensor::generator_state(generator));
  const auto set = [](const auto& states) {
    for (const auto& [generator, state] : states) {
      at::Generator changed = generator;
      tensor::set_generator_state(changed, state);
    }
  };
  set(generators_);
  run_and_restore(forward, [&] { set(present); });
}

}  // namespace accel::nn
