// What a rank needs to go on besides what all ranks have, and what becomes of it with another number of ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <memory>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "parallel/parallel_model.hpp"
#include "state/gradient_state.hpp"
#include "tensor/stateful.hpp"

namespace accel::accelerator {

// Each rank of those that save has its own; another one takes that of one of them.
class RankState : public tensor::Stateful {
 public:
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override {
    load_state_dict(states[static_cast<size_t>(rank) % states.size()]);
  }
};

// The default generator of a device. A rank that did not save draws numbers of its own.
class GeneratorState final : public RankState {
 public:
  explicit GeneratorState(c10::Device device) : device_(device) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override;

 private:
  c10::Device device_;
};

// Where groups of micro-batches stand.
class AccumulationState final : public RankState {
 public:
  explicit AccumulationState(state::AccumulationGroups groups) : groups_(std::move(groups)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  // Counts of items cannot be shared out between other ranks.
  void check_states_of_ranks(const std::vector<c10::IValue>& states) const override;

 private:
  state::AccumulationGroups groups_;
};

// What the exchange of gradients remembers, for each model.
class ReductionState final : public RankState {
 public:
  explicit ReductionState(std::vector<parallel::ParallelModelPtr> models) : models_(std::move(models)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;

 private:
  std::vector<parallel::ParallelModelPtr> models_;
};

// The models' buffers. Rank 0's are in the files of the models; those of another rank differ where it has not heard of
// rank 0's since. Other numbers of ranks share rank 0's.
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

// What open groups of micro-batches have summed up so far. Other ranks bring in the mean over those that saved, so that
// the mean over all of them is that one.
class GradientSums final : public RankState {
 public:
  GradientSums(std::vector<nn::ModulePtr> models, bool open) : models_(std::move(models)), open_(open) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override;

 private:
  std::vector<nn::ModulePtr> models_;
  bool open_;
};

}  // namespace accel::accelerator
