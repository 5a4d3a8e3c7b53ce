// SPDX-License-Identifier: Apache-2.0
// Files of prepared models and optimizers outside of checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "accelerator/checkpoints/training_checkpoint.hpp"
#include "accelerator/prepared_objects.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "state/state.hpp"

namespace accel {
struct FsdpFileSettings;
}

namespace accel::accelerator {

class PreparedFiles {
 public:
  // All are those of the accelerator that has this.
  PreparedFiles(state::State& state, PreparedObjects& prepared, const TrainingCheckpoints& training)
      : state_(state), prepared_(prepared), training_(training) {}

  // Collective for a model of which ranks store parts; ranks that do not keep its tensors return nothing. They are in
  // files of `folder`, if that is given.
  nn::NamedTensors whole_state_dict(const nn::ModulePtr& module, bool keep, const std::string& folder = "") const {
    return whole_state_dict(module, keep, folder, [](const std::string&) { return true; });
  }
  // Collective for a model of which ranks store parts. Others are saved by the calling rank, if it writes.
  void save_model(const nn::ModulePtr& module, const std::string& folder, bool writes,
                  const SaveModelSettings& settings = {}) const;

  // Saves an adapter of the model in the format of PEFT. Collective as save_model().
  void save_adapter(const nn::ModulePtr& module, const std::string& name, const std::string& folder, bool writes) const;

  // Collective. The files in which FSDP keeps a model or an optimizer outside of checkpoints; its layout is that of the
  // model, or of the first of the optimizer's models, unless it is given. @accelerate utils.save_fsdp_model
  void save_fsdp_model(const nn::ModulePtr& module, const std::string& folder, const FsdpFileSettings& settings) const;
  void load_fsdp_model(const nn::ModulePtr& module, const std::string& folder, const FsdpFileSettings& settings) const;
  void save_fsdp_optimizer(const std::shared_ptr<optim::Optimizer>& optimizer, const std::string& folder,
                           const FsdpFileSettings& settings) const;
  void load_fsdp_optimizer(const std::shared_ptr<optim::Optimizer>& optimizer, const std::string& folder,
                           const FsdpFileSettings& settings) const;

 private:
  using IsWanted = std::function<bool(const std::string& name)>;
  nn::NamedTensors whole_state_dict(const nn::ModulePtr& module, bool keep, const std::string& folder,
                                    const IsWanted& is_wanted) const;

  state::State& state_;
  PreparedObjects& prepared_;
  const TrainingCheckpoints& training_;
};

}  // namespace accel::accelerator
