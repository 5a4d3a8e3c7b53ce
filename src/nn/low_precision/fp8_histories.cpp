// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_histories.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "config/generated/choices/fp8_amax_algorithm.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr const char* kHistory = "history";
constexpr const char* kScales = "scales";
constexpr const char* kSteps = "steps";
constexpr const char* kLayers = "layers";

at::Tensor largest_numbers(const Fp8Scheme& scheme, c10::Device device) {
  const float operands = kernels::largest_of(scheme.operands), gradients = kernels::largest_of(scheme.gradients);
  return at::tensor({operands, operands, gradients}, at::kFloat).to(device);
}

const c10::IValue& member(const c10::IValue& map, const char* key) {
  const c10::IValue* const found = tree::find_member(map, key);
  require(found != nullptr, Status::kCorrupt, "the saved histories of fp8 lack '", key, "'");
  return *found;
}

at::Tensor tensor_of(const c10::IValue& map, const char* key, int64_t dimensions) {
  const c10::IValue value = member(map, key);
  require(value.isTensor() && value.toTensor().dim() == dimensions && value.toTensor().size(-1) == kFp8Roles,
          Status::kCorrupt, "'", key, "' in the saved histories of fp8 is not a tensor of ", dimensions,
          " dimensions with ", kFp8Roles, " numbers in the last one");
  return value.toTensor();
}

}  // namespace

Fp8Histories::Fp8Histories(const precision::Fp8Recipe& recipe, const Fp8Scheme& scheme, std::vector<std::string> layers,
                           c10::Device device)
    : recipe_(recipe), layers_(std::move(layers)), largest_(largest_numbers(scheme, device)) {
  const auto numbers = at::TensorOptions().dtype(at::kFloat).device(device);
  const auto count = static_cast<int64_t>(layers_.size());
  history_ = at::zeros({recipe.amax_history_length, count, kFp8Roles}, numbers);
  magnitudes_ = at::zeros({count, kFp8Roles}, numbers);
  scales_ = at::zeros({count, kFp8Roles}, numbers);
  steps_ = at::zeros({1}, numbers.dtype(at::kLong));
}

DelayedScale Fp8Histories::of(size_t layer, Fp8Role role) const {
  const auto slot = [&](const at::Tensor& numbers) {
    return numbers.select(0, static_cast<int64_t>(layer)).narrow(0, static_cast<int64_t>(role), 1);
  };
  return {slot(scales_), slot(magnitudes_)};
}

void Fp8Histories::update(const at::Tensor& magnitudes) {
  const at::NoGradGuard no_grad;
  const int64_t kept = history_.size(0) - 1;
  history_.copy_(at::cat({magnitudes.unsqueeze(0), history_.narrow(0, 0, kept)}));
  magnitudes_.zero_();
  steps_.add_(1);
  const bool takes_largest = recipe_.amax_algorithm == Fp8AmaxAlgorithm::kMax;
  const at::Tensor statistic = takes_largest ? history_.amax(0) : history_.select(0, 0);
  const at::Tensor found = largest_ / statistic * std::ldexp(1.0f, -static_cast<int>(recipe_.margin));
  const at::Tensor is_due = steps_.remainder(recipe_.interval).eq(0).logical_or(scales_.eq(0));
  const at::Tensor is_usable = statistic.gt(0).logical_and(found.isfinite());
  scales_.copy_(at::where(is_due.logical_and(is_usable), found, scales_));
}

c10::IValue Fp8Histories::state_dict() const {
  const at::Tensor history = history_.cpu(), scales = scales_.cpu();
  auto of_layers = tree::new_map();
  for (size_t i = 0; i < layers_.size(); i++) {
    const auto layer = static_cast<int64_t>(i);
    auto saved = tree::new_map();
    saved.insert(kHistory, history.select(1, layer).contiguous());
    saved.insert(kScales, scales.select(0, layer).contiguous());
    of_layers.insert(layers_[i], saved);
  }
  auto saved = tree::new_map();
  saved.insert(kSteps, steps_.item<int64_t>());
  saved.insert(kLayers, of_layers);
  return saved;
}

void Fp8Histories::load_states(const std::vector<c10::IValue>& states) {
  at::Tensor history = at::zeros(history_.sizes(), at::kFloat), scales = at::zeros(scales_.sizes(), at::kFloat);
  int64_t steps = 0;
  for (const c10::IValue& state : states) {
    const c10::IValue saved_steps = member(state, kSteps), of_layers = member(state, kLayers);
    require(saved_steps.isInt(), Status::kCorrupt, "'", kSteps, "' of the saved histories of fp8 is no integer");
    steps = saved_steps.toInt();
    for (size_t i = 0; i < layers_.size(); i++) {
      const c10::IValue* const saved = tree::find_member(of_layers, layers_[i].c_str());
      if (saved == nullptr) continue;
      const at::Tensor of_layer = tensor_of(*saved, kHistory, 2);
      require(of_layer.size(0) == history.size(0), Status::kInvalidArgument, "the checkpoint has histories of fp8 of ",
              of_layer.size(0), " steps and amax_history_length is ", history.size(0),
              "; expected the recipe that it was saved with");
      const auto layer = static_cast<int64_t>(i);
      history.select(1, layer).copy_(of_layer);
      scales.select(0, layer).copy_(tensor_of(*saved, kScales, 1));
    }
  }
  history_.copy_(history);
  scales_.copy_(scales);
  magnitudes_.zero_();
  steps_.fill_(steps);
}

}  // namespace accel::nn
