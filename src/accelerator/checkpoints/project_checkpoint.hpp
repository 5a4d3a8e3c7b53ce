// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a project: their names, their number, the removal of the oldest, and saves in the background.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "accelerator/checkpoints/background_save.hpp"
#include "accelerator/checkpoints/training_checkpoint.hpp"
#include "accelerator/replicas/replica_check.hpp"
#include "checkpoint/project.hpp"

namespace accel::accelerator {

class ProjectCheckpoints {
 public:
  // All are those of the accelerator that has this.
  ProjectCheckpoints(state::State& state, TrainingCheckpoints& training, ReplicaCheck& replicas)
      : state_(state), training_(training), replicas_(replicas) {}

  checkpoint::Project& project() { return project_; }
  // Collective. Saves the training in the folder, or as the project's next checkpoint if none is given.
  // An asynchronous save returns when the tensors are copied, or if accelerators have no memory for the copies when it
  // is complete. Where the replicas are compared, a training whose ranks differ is not saved.
  void save_checkpoint(const std::optional<std::string>& folder, checkpoint::SaveOptions options);
  // Collective. Loads the checkpoint of the folder, or the newest of the project.
  void load_checkpoint(const std::optional<std::string>& folder, checkpoint::LoadOptions options);
  // Waits for an asynchronous save; false if it is under way after the timeout. Throws its error, once; else the next
  // save or load does.
  bool wait_for_checkpoint(std::chrono::milliseconds timeout);
  // Waits without a limit; with `refuse` a save that is under way is an error instead.
  void finish_background_save(bool refuse);
  BackgroundSave::Progress checkpoint_progress() const;
  // The folder that was saved or loaded last; empty: none.
  const std::string& last_checkpoint() const { return last_checkpoint_; }
  // The last one behind which the ranks were found to be equal, which rotation keeps; empty: none.
  const std::string& agreed_checkpoint() const { return replicas_.agreed_checkpoint(); }
  void release_memory();

 private:
  // False: there was no memory for copies, and the state is written.
  bool start_background_save(const std::string& folder, const checkpoint::SaveOptions& options,
                             const checkpoint::Ranks& ranks, const std::function<void(const checkpoint::Ranks&)>& then);

  state::State& state_;
  TrainingCheckpoints& training_;
  ReplicaCheck& replicas_;
  checkpoint::Project project_;
  std::string last_checkpoint_;
  bool background_is_agreed_ = false;           // whether the ranks were equal when the last asynchronous save began
  std::unique_ptr<BackgroundSave> background_;  // of the first asynchronous save
};

}  // namespace accel::accelerator
