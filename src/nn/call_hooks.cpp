// SPDX-License-Identifier: Apache-2.0
#include "nn/call_hooks.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tensor/autograd/backward.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// The index after a hook that ran at `index`: it may have removed itself and added others.
template <typename Entries, typename Hook>
size_t next_hook(const Entries& entries, size_t index, const Hook& hook) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.hook == hook; });
  return found == entries.end() ? index : static_cast<size_t>(found - entries.begin()) + 1;
}

// False when there is none. Counts down if it was one that runs after errors.
template <typename Entries>
bool remove_by_id(Entries& entries, int64_t id, int& after_errors) {
  const auto found = std::find_if(entries.begin(), entries.end(), [id](const auto& entry) { return entry.id == id; });
  if (found == entries.end()) return false;
  after_errors -= found->after_errors ? 1 : 0;
  entries.erase(found);
  return true;
}

// The tensors in some values that require gradients, and values with these replaced.
std::vector<at::Tensor> differentiable(const Inputs& values) {
  std::vector<at::Tensor> found;
  for (const c10::IValue& value : values)
    tree::for_each_leaf(value, [&](const c10::IValue& leaf) {
      if (leaf.isTensor() && leaf.toTensor().defined() && leaf.toTensor().requires_grad())
        found.push_back(leaf.toTensor());
    });
  return found;
}
template <typename Otherwise>
Inputs exchange(const Inputs& values, const std::vector<at::Tensor>& others, const Otherwise& otherwise) {
  Inputs exchanged;
  size_t next = 0;
  for (const c10::IValue& value : values)
    exchanged.push_back(tree::map_tensors(value, [&](const at::Tensor& tensor) {
      return tensor.defined() && tensor.requires_grad() ? others[next++] : otherwise(tensor);
    }));
  return exchanged;
}
Inputs gradients_like(const Inputs& values, const std::vector<at::Tensor>& gradients) {
  return exchange(values, gradients, [](const at::Tensor&) { return at::Tensor(); });
}

// The gradients that a hook returned, for the tensors in `like` that require them.
std::vector<at::Tensor> gradients_of(const Inputs& like, const Inputs& returned, const std::string& kind) {
  const auto leaves = [](const Inputs& values) {
    std::vector<c10::IValue> found;
    for (const c10::IValue& value : values)
      tree::for_each_leaf(value, [&](const c10::IValue& leaf) { found.push_back(leaf); });
    return found;
  };
  const std::vector<c10::IValue> places = leaves(like), given = leaves(returned);
  require(places.size() == given.size(), Status::kShapeMismatch, "a backward hook of a module of kind '", kind,
          "' returned ", given.size(), " values; expected ", places.size(), ", as it was given");
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < places.size(); i++) {
    if (!places[i].isTensor() || !places[i].toTensor().defined() || !places[i].toTensor().requires_grad()) continue;
    require(given[i].isNone() || given[i].isTensor(), Status::kTypeMismatch, "a backward hook of a module of kind '",
            kind, "' returned a ", tree::kind_name(given[i]), "; expected tensors, or none for no gradient");
    gradients.push_back(given[i].isTensor() ? given[i].toTensor() : at::Tensor());
  }
  return gradients;
}

// Makes the same structure with empty tensors that only have requires_grad, to be held by the graph.
Inputs detached_like(const Inputs& values) {
  Inputs like;
  for (const c10::IValue& value : values)
    like.push_back(tree::map_tensors(value, [](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      at::Tensor empty = at::empty({0}, tensor.options());
      return empty.set_requires_grad(tensor.requires_grad());
    }));
  return like;
}

}  // namespace

template <typename Hook, typename Precedes>
int64_t CallHooks::add_hook(std::vector<Registered<Hook>>& hooks, Hook hook, HookOrder order, const Precedes& precedes,
                            bool after_errors) {
  members_.check_hookable();
  const auto place =
      std::find_if(hooks.begin(), hooks.end(), [&](const auto& other) { return precedes(order, other.order); });
  hooks.insert(place, {next_hook_, order, std::make_shared<const Hook>(std::move(hook)), after_errors});
  hooks_after_errors_ += after_errors ? 1 : 0;
  return next_hook_++;
}

int64_t CallHooks::add_pre_hook(PreHook hook, HookOrder order) {
  return add_hook(pre_hooks_, std::move(hook), order, std::less<>());
}

int64_t CallHooks::add_post_hook(PostHook hook, HookOrder order, bool after_errors) {
  return add_hook(post_hooks_, std::move(hook), order, std::greater<>(), after_errors);
}

int64_t CallHooks::add_backward_pre_hook(BackwardHook hook) {
  return add_hook(backward_pre_hooks_, std::move(hook), HookOrder::kProgram, std::less<>());
}

int64_t CallHooks::add_backward_hook(BackwardHook hook) {
  return add_hook(backward_hooks_, std::move(hook), HookOrder::kProgram, std::less<>());
}

bool CallHooks::remove_hook(int64_t id) {
  int& count = hooks_after_errors_;
  return remove_by_id(pre_hooks_, id, count) || remove_by_id(post_hooks_, id, count) ||
         remove_by_id(backward_pre_hooks_, id, count) || remove_by_id(backward_hooks_, id, count);
}

// By index, and with a reference to each hook, because hooks may add and remove hooks.
const Inputs* CallHooks::run_pre_hooks(const Inputs& inputs, Inputs& replaced) {
  const Inputs* current = &inputs;
  for (size_t i = 0; i < pre_hooks_.size();) {
    const auto hook = pre_hooks_[i].hook;
    if (auto result = (*hook)(module_, *current)) {
      replaced = std::move(*result);
      current = &replaced;
    }
    i = next_hook(pre_hooks_, i, hook);
  }
  return current;
}

void CallHooks::run_post_hooks(const Inputs& inputs, c10::IValue& output) {
  for (size_t i = 0; i < post_hooks_.size();) {
    const auto hook = post_hooks_[i].hook;
    if (auto result = (*hook)(module_, inputs, output)) output = std::move(*result);
    i = next_hook(post_hooks_, i, hook);
  }
}

void CallHooks::run_placement_hooks_after_stop(const Inputs& inputs) {
  for (size_t i = 0; i < post_hooks_.size();) {
    const auto hook = post_hooks_[i].hook;
    if (post_hooks_[i].order == HookOrder::kPlacement && !post_hooks_[i].after_errors) (*hook)(module_, inputs, {});
    i = next_hook(post_hooks_, i, hook);
  }
}

void CallHooks::run_hooks_after_error(const Inputs& inputs) noexcept {
  for (size_t i = 0; i < post_hooks_.size();) {
    const auto hook = post_hooks_[i].hook;
    if (post_hooks_[i].after_errors) try {
        (*hook)(module_, inputs, {});
      } catch (...) {
        // The first error is the one to report.
      }
    i = next_hook(post_hooks_, i, hook);
  }
}

Inputs CallHooks::run_backward_hooks(const std::vector<Registered<BackwardHook>>& hooks, Module& module,
                                     Inputs gradients) {
  for (size_t i = 0; i < hooks.size();) {
    const auto hook = hooks[i].hook;
    if (auto result = (*hook)(module, gradients)) gradients = std::move(*result);
    i = next_hook(hooks, i, hook);
  }
  return gradients;
}

// The graph owns the module, not the other way round.
const Inputs* CallHooks::watch_inputs(const ModulePtr& self, const Inputs& inputs, Inputs& watched,
                                      bool& inputs_need_none) {
  if (backward_hooks_.empty()) return nullptr;
  const std::vector<at::Tensor> tensors = differentiable(inputs);
  inputs_need_none = tensors.empty();
  if (inputs_need_none) return nullptr;
  const auto gradients_watched = tensor::watch_gradients(
      tensors, [this, self, like = detached_like(inputs)](const std::vector<at::Tensor>& gradients) {
        const Inputs kept = run_backward_hooks(backward_hooks_, *self, gradients_like(like, gradients));
        return gradients_of(like, kept, members_.kind());
      });
  watched = exchange(inputs, gradients_watched, [](const at::Tensor& tensor) { return tensor; });
  return &watched;
}

c10::IValue CallHooks::watch_output(const ModulePtr& self, const c10::IValue& output, bool after_too) {
  const std::vector<at::Tensor> tensors = differentiable({output});
  if (tensors.empty()) return output;
  const auto watched = tensor::watch_gradients(
      tensors, [this, self, like = detached_like({output}), after_too](const std::vector<at::Tensor>& gradients) {
        const Inputs kept = run_backward_hooks(backward_pre_hooks_, *self, gradients_like(like, gradients));
        if (after_too) run_backward_hooks(backward_hooks_, *self, {});
        return gradients_of(like, kept, members_.kind());
      });
  return exchange({output}, watched, [](const at::Tensor& tensor) { return tensor; })[0];
}

}  // namespace accel::nn
