// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training: everything that is prepared or registered, as a folder.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "checkpoint/load_training_state.hpp"
#include "checkpoint/save_options.hpp"
#include "checkpoint/training_state.hpp"
#include "state/state.hpp"
#include "tensor/stateful.hpp"

namespace accel::accelerator {

// An object of the application that is saved in checkpoints.
struct RegisteredObject {
  std::string name;  // empty: it is numbered
  std::function<c10::IValue()> save;
  std::function<void(const c10::IValue&)> load;
};

// Runs before a checkpoint of `folder` is written or read: the models' states, or before a load their numbers, and None
// for those that will not be saved or loaded. The hook may add files to the folder that is written.
using CheckpointHook = std::function<void(std::vector<c10::IValue>& models, const std::string& folder)>;

class TrainingCheckpoints {
 public:
  // Both are those of the accelerator that has this.
  TrainingCheckpoints(state::State& state, PreparedObjects& prepared) : state_(state), prepared_(prepared) {}

  void register_for_checkpointing(RegisteredObject object);
  // A generator of the application; every rank saves its own.
  void register_random_state(RegisteredObject generator);
  // They return a number for remove_checkpoint_hook().
  int64_t add_save_hook(CheckpointHook hook);
  int64_t add_load_hook(CheckpointHook hook);
  void remove_checkpoint_hook(int64_t id);

  void save_state(const std::string& folder, const checkpoint::SaveOptions& options = {});
  // Returns the checkpoint's iteration, unless it is one of Accelerate.
  std::optional<int64_t> load_state(const std::string& folder, const checkpoint::LoadOptions& options = {});
  // The state that save_state() writes; the hooks may add files to `folder`.
  checkpoint::TrainingState collect_state(const std::string& folder) const;
  // Throws where ranks have parts of a model that only its program knows: rank 0 saves what has no placement for all.
  void require_known_parts() const;

 private:
  // An object that is saved in checkpoints.
  struct SavedObject {
    checkpoint::StateEntry entry() const;

    checkpoint::StateKind kind;  // determines whether it is replicated or per rank
    std::string name;            // as in checkpoint::StateEntry
    std::shared_ptr<tensor::Stateful> object;
    bool may_be_missing = false;  // in a checkpoint
    bool is_equal_on_all_ranks = false;
  };
  using CheckpointHooks = std::vector<std::pair<int64_t, CheckpointHook>>;

  std::vector<SavedObject> saved_objects() const;
  c10::IValue saved_state(const tensor::Stateful& object, checkpoint::StateKind kind, const std::string& folder) const;
  void leave_out_models_of_hooks(checkpoint::TrainingState& like, const std::string& folder) const;
  int64_t add_hook(CheckpointHooks& hooks, CheckpointHook hook);

  state::State& state_;
  PreparedObjects& prepared_;
  std::vector<RegisteredObject> objects_;
  std::vector<RegisteredObject> generators_;
  CheckpointHooks save_hooks_;
  CheckpointHooks load_hooks_;
  int64_t next_hook_ = 0;
};

}  // namespace accel::accelerator
