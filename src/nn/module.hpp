// Module: parameters, buffers, children, and call(), which runs the hooks (sharding, offload, autocast, profiling) and
// the forward.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tensor/placement.hpp"

namespace accel {
struct ActivationCheckpointingSettings;
}

namespace accel::nn {

class Module;
class Placements;
class WeightStore;
using ModulePtr = std::shared_ptr<Module>;
using Inputs = std::vector<c10::IValue>;
using NamedInputs = std::vector<std::pair<std::string, c10::IValue>>;
using NamedTensor = std::pair<std::string, at::Tensor>;
using NamedTensors = std::vector<NamedTensor>;

// Returning nothing leaves the values unchanged.
using PreHook = std::function<std::optional<Inputs>(Module& module, const Inputs& inputs)>;
using PostHook =
    std::function<std::optional<c10::IValue>(Module& module, const Inputs& inputs, const c10::IValue& output)>;

// The gradients of a module's inputs, or of its output, in the same structure; undefined if there is none.
using BackwardHook = std::function<std::optional<Inputs>(Module& module, const Inputs& gradients)>;

// The order of hooks: an earlier class runs first before the forward and last after it. Within a class hooks run in the
// order in which they were added.
enum class HookOrder {
  kPlacement,  // places parameters: sharding, offload. After an EarlyStop its hooks run too, without an output
  kPrecision,  // autocast
  kProgram,
};

// The names that load_state_dict() ignored because it was not strict.
struct LoadReport {
  std::vector<std::string> missing;     // names of the module that the state dict lacks
  std::vector<std::string> unexpected;  // names that the module lacks
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  struct Buffer {
    std::string name;
    at::Tensor tensor;
    bool persistent;
  };

  explicit Module(std::string kind) : kind_(std::move(kind)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The name of its class, for messages.
  const std::string& kind() const { return kind_; }
  bool is_training() const { return training_; }

  // Pre-hooks, forward, post-hooks.
  c10::IValue call(const Inputs& inputs);
  // With positional inputs, then named ones. Hooks and forward get all of them by position.
  c10::IValue call(Inputs inputs, const NamedInputs& named);
  // Maps one tensor to one tensor.
  at::Tensor call(const at::Tensor& input);

  // Returns a number for remove_hook().
  int64_t add_pre_hook(PreHook hook, HookOrder order = HookOrder::kProgram);
  // With `after_errors` it also runs, without an output, if what comes after the first pre-hook throws.
  int64_t add_post_hook(PostHook hook, HookOrder order = HookOrder::kProgram, bool after_errors = false);
  // Hooks of the backward of a call: before it, with the gradients of the output, and after it, with those of the
  // inputs. A returned value replaces them. If no input needs a gradient, the second runs before the parameters get
  // theirs.
  int64_t add_backward_pre_hook(BackwardHook hook);
  int64_t add_backward_hook(BackwardHook hook);
  // False if there is none with this number.
  bool remove_hook(int64_t id);
  // Whether the forward, without hooks, runs without autograd.
  void set_no_grad(bool no_grad);

  // Whether the graph keeps the inputs of the forward instead of its activations (checkpointed_forward.hpp); null: it
  // does not. Hooks are outside of what is computed again.
  void set_activation_checkpointing(std::shared_ptr<const ActivationCheckpointingSettings> settings);
  void check_activation_checkpointing() const { check_hookable(); }

  // Whether it can be called; false for lists of modules and for modules that have no forward yet.
  virtual bool has_forward() const { return true; }

  // Where the values of parameters and buffers are while these have none. Null: they always have them.
  void set_weight_store(std::shared_ptr<WeightStore> store) { weight_store_ = std::move(store); }
  const std::shared_ptr<WeightStore>& weight_store() const { return weight_store_; }

  // The names of the inputs, by position; empty: none.
  virtual std::vector<std::string> input_names() const { return {"input"}; }

  // Building. Names are unique among parameters, buffers and children, and have no dot. The index is for parameter()
  // and buffer(). In a scope of a CreationDevice tensors are moved to its device.
  size_t add_parameter(std::string name, at::Tensor tensor, bool requires_grad = true);
  size_t add_buffer(std::string name, at::Tensor tensor, bool persistent = true);
  void add_child(std::string name, ModulePtr child);
  // Replaces a parameter, which is trained if the tensor requires a gradient, or a buffer.
  void replace_tensor(const std::string& name, at::Tensor tensor);
  void replace_child(const std::string& name, ModulePtr child);
  // Removes the parameter, buffer or child with this name.
  void remove(const std::string& name);
  // Ties weights: `path` becomes the same parameter as `source_path`.
  void tie(std::string_view path, std::string_view source_path);

  // Sets which parts this rank stores of these parameters, which may be anywhere in the tree, under each of their
  // names.
  void set_placements(const Placements& placements);
  // The placements in the whole tree. Parameters that are not there are stored as a whole.
  Placements placements() const;

  // Direct members.
  struct Member {
    std::string name;
    at::Tensor tensor;
    bool is_buffer;
  };
  std::vector<Member> members() const;
  const at::Tensor& parameter(size_t index) const { return parameters_[index].second; }
  const at::Tensor& buffer(size_t index) const { return buffers_[index].tensor; }
  const NamedTensors& direct_parameters() const { return parameters_; }
  const std::vector<Buffer>& direct_buffers() const { return buffers_; }
  const std::vector<std::pair<std::string, ModulePtr>>& children() const { return children_; }

  // The whole tree, parents before children; each tensor and each module once, under its first name.
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  std::vector<std::pair<std::string, const Module*>> named_modules() const;
  // Parameters and all buffers, tied ones and those of shared modules under each of their names.
  NamedTensors named_members() const;
  // Children before their parents, the module itself last. A module with several parents appears under each.
  std::vector<std::pair<std::string, const Module*>> children_bottom_up() const;
  std::vector<at::Tensor> parameters() const;  // without building the names
  int64_t num_parameters() const;              // elements

  // "layers.0.mlp"; "" is the module itself. An error names the missing part of the path.
  ModulePtr find(std::string_view path);
  // A parameter or buffer, "layers.0.weight".
  at::Tensor find_tensor(std::string_view path) const;

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

  // For modules that also store a parameter or a buffer elsewhere.
  virtual void training_changed() {}
  virtual void parameter_replaced(const std::string&, const at::Tensor&) {}
  // Whether children may be replaced and members removed: not if forward refers to its parts in other ways.
  virtual bool has_free_parts() const { return false; }
  // Throws if hooks on this module would have no effect.
  virtual void check_hookable() const {}

  // The input of a module that takes exactly one tensor.
  const at::Tensor& only_tensor(const Inputs& inputs) const;

 private:
  template <typename Hook>
  struct Registered {
    int64_t id;
    HookOrder order;
    std::shared_ptr<const Hook> hook;  // shared: a hook may remove itself while it runs
    bool after_errors = false;
  };
  struct ParameterPlace {
    Module* owner;
    size_t index;
  };

  template <typename Hook, typename Precedes>
  int64_t add_hook(std::vector<Registered<Hook>>& hooks, Hook hook, HookOrder order, const Precedes& precedes,
                   bool after_errors = false);
  c10::IValue call_between_hooks(const Inputs& inputs);
  void run_hooks_after_error(const Inputs& inputs) noexcept;
  c10::IValue run_forward(const Inputs& inputs);
  c10::IValue forward_between_hooks(const Inputs& inputs);
  void run_placement_hooks_after_stop(const Inputs& inputs);
  // `tensors`: those in the inputs that need gradients.
  Inputs watch_inputs(const Inputs& inputs, const std::vector<at::Tensor>& tensors);
  c10::IValue watch_output(const c10::IValue& output, bool after_too);
  static Inputs run_backward_hooks(const std::vector<Registered<BackwardHook>>& hooks, Module& module,
                                   Inputs gradients);
  template <typename Visit>
  void visit_modules(std::unordered_set<const Module*>& seen, const Visit& visit) const;
  void check_name(const std::string& name) const;
  void check_free_parts() const;
  bool reaches(const Module& goal) const;
  const Module& walk(std::string_view path) const;
  ParameterPlace parameter_place(std::string_view path);
  // With repeated shared modules and tied tensors.
  void collect_state(const std::string& prefix, bool all_buffers, NamedTensors& entries) const;

  std::string kind_;
  bool training_ = true;
  bool no_grad_ = false;
  std::shared_ptr<const ActivationCheckpointingSettings> checkpointing_;
  std::shared_ptr<WeightStore> weight_store_;
  int64_t next_hook_ = 0;
  int hooks_after_errors_ = 0;
  NamedTensors parameters_;
  std::map<std::string, tensor::PlacementPtr> placements_;  // of parameters_, by their names, that are not whole here
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::string, ModulePtr>> children_;
  std::vector<Registered<PreHook>> pre_hooks_;
  std::vector<Registered<PostHook>> post_hooks_;
  std::vector<Registered<BackwardHook>> backward_pre_hooks_;
  std::vector<Registered<BackwardHook>> backward_hooks_;
  struct ParameterList;
  mutable std::shared_ptr<const ParameterList> parameter_list_;  // read and written atomically
};

}  // namespace accel::nn
