// SPDX-License-Identifier: Apache-2.0
// Forward state: what a forward depends on beside its inputs and parameters, to compute it again later: random
// generators, autocast, fp8, compute policy, a split sequence, buffers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/compute_policy.hpp"
#include "nn/adapters/adapter_scope.hpp"
#include "nn/module.hpp"
#include "nn/split/split_sequence.hpp"
#include "precision/autocast.hpp"

namespace accel::nn {

class Fp8Layers;

class ForwardState {
 public:
  // Records the state of this thread, before `module` is called with these inputs.
  ForwardState(const Module& module, const Inputs& inputs, bool with_generators);

  // Calls `forward` in this state, with autograd. Afterwards generators and the buffers of `module` are as they were,
  // so nothing is drawn or counted twice.
  void replay(const Module& module, const std::function<void()>& forward) const;

 private:
  void with_autocasts(size_t first, const std::function<void()>& forward) const;
  void with_generators(const std::function<void()>& forward) const;

  kernels::ComputePolicy compute_policy_;
  std::shared_ptr<const SplitSequence> split_sequence_;
  std::vector<precision::AutocastState> autocasts_;
  std::weak_ptr<Fp8Layers> fp8_;
  std::shared_ptr<const AdapterNames> adapters_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;  // with their states
};

}  // namespace accel::nn
