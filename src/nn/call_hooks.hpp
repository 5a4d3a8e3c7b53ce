// SPDX-License-Identifier: Apache-2.0
// Call hooks of a module: functions that run before and after its forward and its backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nn/module_members.hpp"

namespace accel::nn {

using Inputs = std::vector<c10::IValue>;

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

class CallHooks {
 public:
  // `module` has this and the members.
  CallHooks(Module& module, const ModuleMembers& members) : module_(module), members_(members) {}
  CallHooks(const CallHooks&) = delete;
  CallHooks& operator=(const CallHooks&) = delete;

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

  // Module::call() runs them. Returns the inputs for the forward; `replaced` is their memory if they are not the
  // call's.
  const Inputs* run_pre_hooks(const Inputs& inputs, Inputs& replaced);
  bool has_post_hooks() const { return !post_hooks_.empty(); }
  void run_post_hooks(const Inputs& inputs, c10::IValue& output);
  void run_placement_hooks_after_stop(const Inputs& inputs);
  bool has_hooks_after_errors() const { return hooks_after_errors_ > 0; }
  void run_hooks_after_error(const Inputs& inputs) noexcept;

  bool has_backward_hooks() const { return !(backward_pre_hooks_.empty() && backward_hooks_.empty()); }
  // Returns inputs whose gradients the backward hooks watch, in the memory of `watched`. Null if there is nothing to
  // watch: without such hooks, or because no input needs a gradient, which `inputs_need_none` tells.
  const Inputs* watch_inputs(const ModulePtr& self, const Inputs& inputs, Inputs& watched, bool& inputs_need_none);
  c10::IValue watch_output(const ModulePtr& self, const c10::IValue& output, bool after_too);

 private:
  template <typename Hook>
  struct Registered {
    int64_t id;
    HookOrder order;
    std::shared_ptr<const Hook> hook;  // shared: a hook may remove itself while it runs
    bool after_errors = false;
  };

  template <typename Hook, typename Precedes>
  int64_t add_hook(std::vector<Registered<Hook>>& hooks, Hook hook, HookOrder order, const Precedes& precedes,
                   bool after_errors = false);
  static Inputs run_backward_hooks(const std::vector<Registered<BackwardHook>>& hooks, Module& module,
                                   Inputs gradients);

  Module& module_;
  const ModuleMembers& members_;
  int64_t next_hook_ = 0;
  int hooks_after_errors_ = 0;
  std::vector<Registered<PreHook>> pre_hooks_;
  std::vector<Registered<PostHook>> post_hooks_;
  std::vector<Registered<BackwardHook>> backward_pre_hooks_;
  std::vector<Registered<BackwardHook>> backward_hooks_;
};

}  // namespace accel::nn
