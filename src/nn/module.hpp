// SPDX-License-Identifier: Apache-2.0
// Module: call(), which runs the hooks (sharding, offload, autocast, profiling) and the forward, and the tree of its
// children.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "nn/call_hooks.hpp"
#include "nn/module_chain.hpp"
#include "nn/module_members.hpp"

namespace accel {
struct ActivationCheckpointingSettings;
}

namespace accel::nn {

using NamedInputs = std::vector<std::pair<std::string, c10::IValue>>;

// The names that load_state_dict() ignored because it was not strict.
struct LoadReport {
  std::vector<std::string> missing;     // names of the module that the state dict lacks
  std::vector<std::string> unexpected;  // names that the module lacks
};

class Module : public ModuleMembers, public std::enable_shared_from_this<Module> {
 public:
  explicit Module(std::string kind) : ModuleMembers(std::move(kind)) {}

  bool is_training() const { return training_; }

  // Pre-hooks, forward, post-hooks.
  c10::IValue call(const Inputs& inputs);
  // With positional inputs, then named ones. Hooks and forward get all of them by position.
  c10::IValue call(Inputs inputs, const NamedInputs& named);
  // Maps one tensor to one tensor.
  at::Tensor call(const at::Tensor& input);

  CallHooks& hooks() { return hooks_; }
  // Whether the forward, without hooks, runs without autograd.
  void set_no_grad(bool no_grad);

  // Whether the graph keeps the inputs of the forward instead of its activations (checkpointed_forward.hpp); null: it
  // does not. Hooks are outside of what is computed again.
  void set_activation_checkpointing(std::shared_ptr<const ActivationCheckpointingSettings> settings);

  // Whether it can be called; false for lists of modules and for modules that have no forward yet.
  virtual bool has_forward() const { return true; }

  // The names of the inputs, by position; empty: none.
  virtual std::vector<std::string> input_names() const { return {"input"}; }

  // The model as a chain, to be called while the model lives; empty: it is none.
  virtual ModuleChain chain() { return {}; }

  // Parameters of the whole tree, each once; without building the names. See module_walks.hpp for other walks.
  std::vector<at::Tensor> parameters() const;

  // "layers.0.mlp"; "" is the module itself. An error names the missing part of the path.
  ModulePtr find(std::string_view path);

  // Parameters and persistent buffers; tied ones under each of their names. The tensors share memory with the module.
  NamedTensors state_dict() const;
  // Copies the values. Everything is checked before anything is changed. A tied tensor is not missing if it is under
  // another of its names.
  LoadReport load_state_dict(const NamedTensors& entries, bool strict = true);

  void train(bool training = true);
  // In place: tensors keep their identity, so handles and optimizers stay valid. `dtype` is for floating tensors.
  void to(std::optional<at::ScalarType> dtype, std::optional<at::Device> device);

 protected:
  virtual c10::IValue forward(const Inputs& inputs);

  // The default of a missing input before a named one.
  virtual c10::IValue absent_input(size_t) const { return {}; }

  // For modules that also store it elsewhere.
  virtual void training_changed() {}
  bool is_within(const Module& other) const override;

  // The input of a module that takes exactly one tensor.
  const at::Tensor& only_tensor(const Inputs& inputs) const;

 private:
  c10::IValue call_between_hooks(const Inputs& inputs);
  c10::IValue run_forward(const Inputs& inputs);
  c10::IValue forward_between_hooks(const Inputs& inputs);

  bool training_ = true;
  bool no_grad_ = false;
  std::shared_ptr<const ActivationCheckpointingSettings> checkpointing_;
  CallHooks hooks_{*this, *this};
  struct ParameterList;
  mutable std::shared_ptr<const ParameterList> parameter_list_;  // read and written atomically
};

}  // namespace accel::nn
