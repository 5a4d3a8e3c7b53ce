// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/fp8_scales.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <utility>

#include "accelerator/steps/step_clipping.hpp"
#include "nn/low_precision/fp8_layers.hpp"

namespace accel::accelerator {
namespace {

// Ranks whose inputs have ended make no steps with those of a model that each rank has as a whole.
bool steps_on_all_ranks(parallel::ParallelModel& model) {
  return !model.has_uneven_inputs() || model.parts() != nullptr;
}

}  // namespace

void Fp8Scales::add(const std::shared_ptr<nn::Fp8Layers>& layers, const parallel::ParallelModelPtr& model,
                    std::shared_ptr<comm::Communicator> ranks) {
  if (layers->histories() != nullptr) entries_.push_back({layers, model, std::move(ranks)});
}

void Fp8Scales::update(const std::shared_ptr<optim::Optimizer>& optimizer) {
  std::vector<std::shared_ptr<nn::Fp8Layers>> updated;
  std::vector<at::Tensor> magnitudes;
  std::shared_ptr<comm::Communicator> ranks;
  for (Entry& entry : entries_) {
    const auto layers = entry.layers.lock();
    const auto model = entry.model.lock();
    if (layers == nullptr || model == nullptr) continue;
    if (entry.optimizer.expired() && updates(*optimizer, *model->module())) entry.optimizer = optimizer;
    if (entry.optimizer.lock() != optimizer) continue;
    updated.push_back(layers);
    magnitudes.push_back(layers->histories()->magnitudes());
    if (steps_on_all_ranks(*model)) ranks = entry.ranks;
  }
  if (updated.empty()) return;
  at::Tensor largest = at::cat(magnitudes);
  if (ranks != nullptr && ranks->size() > 1) {
    largest = largest.to(ranks->device());
    ranks->all_reduce(largest, comm::ReduceOp::kMax);
    largest = largest.to(magnitudes.front().device());
  }
  int64_t begin = 0;
  for (const auto& layers : updated) {
    const int64_t count = layers->histories()->magnitudes().size(0);
    layers->histories()->update(largest.narrow(0, begin, count));
    begin += count;
  }
}

}  // namespace accel::accelerator
