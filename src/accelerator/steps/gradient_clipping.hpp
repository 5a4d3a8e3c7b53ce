// SPDX-License-Identifier: Apache-2.0
// Gradient clipping: what is done to the gradients of prepared models between the backward and the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "comm/mesh.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

// Throws unless the rank knows the norm of all gradients of the module: it counts each parameter once, and which of a
// rank's are parts and which are copies only the program may know.
void require_known_norm(const nn::Module& module, const parallel::PlacedParameters& placed, const comm::Mesh& mesh);

class GradientClipping {
 public:
  // Both are those of the accelerator that has this.
  GradientClipping(const state::State& state, const PreparedObjects& prepared) : state_(state), prepared_(prepared) {}
  GradientClipping(const GradientClipping&) = delete;

  // Unscales the gradients of one prepared optimizer, or of all; does nothing while gradients accumulate. Returns
  // whether they were complete.
  bool unscale_gradients(optim::Optimizer* optimizer) const;
  // Unscales for the optimizers of this model's parameters, also while gradients accumulate.
  void unscale_gradients_of(const nn::Module& model) const;
  // Clips as optim/clip.hpp does, after unscaling the model's gradients. Nothing while gradients accumulate.
  std::optional<at::Tensor> clip_gradients_by_norm(const nn::ModulePtr& model, double max_norm, double norm_type) const;
  // Returns whether gradients were complete.
  bool clip_gradients_by_value(const nn::ModulePtr& model, double clip_value) const;

 private:
  struct Clipped {
    parallel::ParallelModelPtr model;  // with uneven inputs; null: no rank needs to be notified
    std::vector<at::Tensor> parameters;
  };

  // Gradients are unscaled.
  Clipped begin(const nn::ModulePtr& model) const;

  const state::State& state_;
  const PreparedObjects& prepared_;
};

}  // namespace accel::accelerator
