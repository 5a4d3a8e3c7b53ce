// SPDX-License-Identifier: Apache-2.0
// Accelerator: the state of a rank and the parts of its training, each of which has one mechanism.
#pragma once

#include <memory>

#include "accelerator/checkpoints/prepared_files.hpp"
#include "accelerator/checkpoints/project_checkpoint.hpp"
#include "accelerator/checkpoints/training_checkpoint.hpp"
#include "accelerator/preparation.hpp"
#include "accelerator/prepared_objects.hpp"
#include "accelerator/randomness.hpp"
#include "accelerator/steps/gradient_clipping.hpp"
#include "accelerator/steps/loss_backward.hpp"
#include "accelerator/steps/step_measurement.hpp"
#include "accelerator/training_precision.hpp"
#include "config/state_settings.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

class Accelerator {
 public:
  explicit Accelerator(const StateSettings& given);
  // Without prepared objects.
  Accelerator(const Accelerator& parent, std::shared_ptr<comm::Communicator> group);
  // In the same job, with its own settings.
  Accelerator(const Accelerator& parent, const StateSettings& given);
  Accelerator(const Accelerator&) = delete;  // its parts refer to each other
  Accelerator& operator=(const Accelerator&) = delete;

  state::State& state() { return state_; }
  const state::State& state() const { return state_; }

  // The prepared objects, the preparation, and the precision.
  const PreparedObjects& prepared() const { return prepared_; }
  Preparation& preparation() { return preparation_; }
  TrainingPrecision& precision() { return precision_; }
  const TrainingPrecision& precision() const { return precision_; }
  // A step.
  LossBackward& backward() { return backward_; }
  const GradientClipping& clipping() const { return clipping_; }
  // Saves and loads everything that is prepared or registered; with the names and numbers of a project; and single
  // models and optimizers.
  TrainingCheckpoints& checkpoints() { return checkpoints_; }
  ProjectCheckpoints& projects() { return projects_; }
  const PreparedFiles& files() const { return files_; }
  Randomness& randomness() { return randomness_; }
  StepMeasurement& measurement() { return measurement_; }

  // Releases all prepared objects; registered ones stay.
  void free_memory();
  // Returns cached memory to the system.
  void release_cached_memory();
  // Waits for all ranks, then leaves the group.
  void end_training();

 private:
  state::State state_;
  PreparedObjects prepared_{state_.groups().mesh(), default_context_method(state_.settings())};
  TrainingPrecision precision_;
  Preparation preparation_{state_, prepared_, precision_};
  LossBackward backward_{state_, prepared_};
  const GradientClipping clipping_{state_, prepared_};
  TrainingCheckpoints checkpoints_{state_, prepared_};
  ProjectCheckpoints projects_{state_, checkpoints_, preparation_.replicas()};
  const PreparedFiles files_{state_, prepared_, checkpoints_};
  Randomness randomness_{state_};
  StepMeasurement measurement_{state_};
};

}  // namespace accel::accelerator
