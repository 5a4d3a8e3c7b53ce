// SPDX-License-Identifier: Apache-2.0
// Rank state: the training state that differs between ranks, and its conversion for another number of ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "parallel/parallel_model.hpp"
#include "state/gradient_state.hpp"
#include "tensor/stateful.hpp"

namespace accel::parallel {
class LocalSgd;
}

namespace accel::accelerator {

// Every saving rank has its own; with another number of ranks, each loads that of one of them.
class RankState : public tensor::Stateful {
 public:
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override {
    load_state_dict(states[static_cast<size_t>(rank) % states.size()]);
  }
};

// The default generator of a device. Additional ranks get a new random stream.
class GeneratorState final : public RankState {
 public:
  explicit GeneratorState(c10::Device device) : device_(device) {}
  // Accelerate's: "torch_manual_seed" of the CPU, "torch_<kind>_manual_seed" of others.
  static std::string key(c10::Device device);
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override;

 private:
  c10::Device device_;
};

// Micro-batches since a loader ended: of the model that has trained most, where models are trained by turns.
int64_t latest_micro_batch(const state::AccumulationWindows& windows);

// The micro-batch, which is all that Accelerate saves of accumulation windows.
class StepState final : public RankState {
 public:
  explicit StepState(state::AccumulationWindows windows) : windows_(std::move(windows)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;

 private:
  state::AccumulationWindows windows_;
};

// The progress of the accumulation windows.
class AccumulationState final : public RankState {
 public:
  explicit AccumulationState(state::AccumulationWindows windows) : windows_(std::move(windows)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  // Counts of items cannot be divided among another number of ranks.
  void check_states_of_ranks(const std::vector<c10::IValue>& states) const override;

 private:
  state::AccumulationWindows windows_;
};

// The state of the gradient exchange of each model.
class ReductionState final : public RankState {
 public:
  explicit ReductionState(std::vector<parallel::ParallelModelPtr> models) : models_(std::move(models)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;

 private:
  std::vector<parallel::ParallelModelPtr> models_;
};

// The models' buffers. Rank 0's are in the model files; those of other ranks may differ since they were last
// synchronized. With another number of ranks all load rank 0's.
class BufferState final : public RankState {
 public:
  BufferState(std::vector<nn::ModulePtr> models, bool is_main_process)
      : models_(std::move(models)), is_main_process_(is_main_process) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  void load_states_of_ranks(const std::vector<c10::IValue>& /*states*/, int /*rank*/) override {}

 private:
  std::vector<nn::ModulePtr> models_;
  bool is_main_process_;
};

// Local SGD that is under way. While the ranks' weights and optimizers differ, each has its own here but rank 0, whose
// are in the files of models and optimizers. With another number of ranks all begin at the mean of the weights, with
// rank 0's optimizers.
class LocalSgdState final : public RankState {
 public:
  LocalSgdState(std::vector<std::shared_ptr<parallel::LocalSgd>> runs,
                std::vector<std::shared_ptr<tensor::Stateful>> optimizers, bool is_main_process);
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override;
  void check_states_of_ranks(const std::vector<c10::IValue>& states) const override;

 private:
  void load_runs(const c10::IValue& state) const;

  std::vector<std::shared_ptr<parallel::LocalSgd>> runs_;
  std::vector<at::Tensor> weights_;  // of their models
  std::vector<std::shared_ptr<tensor::Stateful>> optimizers_;
  bool is_main_process_;
};

}  // namespace accel::accelerator
