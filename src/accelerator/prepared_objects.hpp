// SPDX-License-Identifier: Apache-2.0
// The prepared objects of a training loop: what an accelerator has made of the models, optimizers, schedulers and
// loaders that it was given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "accelerator/parameters/registered_parameters.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/sequence_splitting.hpp"
#include "nn/module.hpp"
#include "optim/schedules/scheduler.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/placed_parameters.hpp"
#include "state/gradient_state.hpp"

namespace accel {
struct DeepspeedSettings;
namespace data {
class PreparedDataLoader;
}
namespace parallel {
class LocalSgd;
}
namespace precision {
class GradScaler;
}
}  // namespace accel

namespace accel::accelerator {

class PreparedModel;

// A model without its wrappers.
struct ModelEntry {
  parallel::ParallelModelPtr parallel() const;  // with its parallelism while the prepared model exists

  nn::ModulePtr model;
  std::weak_ptr<PreparedModel> prepared;  // empty if the application computes the gradients
  std::shared_ptr<state::AccumulationWindow> accumulation;
  parallel::ParallelModelPtr of_application = nullptr;                    // whose gradients the application computes
  std::shared_ptr<const RegisteredMemory> memory = nullptr;               // of the application, which gets its values
  std::string deepspeed = {};                                             // its settings, as accel_describe() has them
  std::shared_ptr<const DeepspeedSettings> deepspeed_settings = nullptr;  // as they were given, maybe with a name
  bool verifies_gradients = false;  // the first backward compares them along the axis tensor
};

struct PreparedObjects {
  PreparedObjects(const std::shared_ptr<comm::Mesh>& mesh, ContextMethod method)
      : placed(std::make_shared<parallel::PlacedParameters>(mesh)),
        sequences(std::make_shared<SequenceSplitting>(mesh, method)) {}

  std::vector<parallel::ParallelModelPtr> parallel_models() const;
  std::vector<nn::ModulePtr> modules() const;
  // The entry of a prepared model, at any depth. kInvalidArgument if there is none.
  const ModelEntry& entry_of(const nn::ModulePtr& module) const;
  void require_own(const optim::Optimizer& optimizer) const;
  std::vector<std::shared_ptr<parallel::LocalSgd>> open_local_sgds() const;
  // The accumulation windows of `own`, the gradient state's, and then of each model.
  state::AccumulationWindows windows(const state::GradientState& gradient_state) const;
  // Whether the ranks have parts of the models that no placement tells.
  bool are_split_by_programs() const;

  std::vector<ModelEntry> models;
  std::shared_ptr<parallel::PlacedParameters> placed;
  std::shared_ptr<SequenceSplitting> sequences;
  std::vector<std::shared_ptr<PreparedOptimizer>> optimizers;
  std::vector<std::shared_ptr<optim::Scheduler>> schedulers;
  std::vector<std::shared_ptr<data::PreparedDataLoader>> loaders;
  std::vector<std::weak_ptr<parallel::LocalSgd>> local_sgds;  // in the order in which they began
  std::shared_ptr<precision::GradScaler> grad_scaler;         // null if losses are not scaled
};

}  // namespace accel::accelerator
