// Calls of modules: runs the hooks around the forward and the backward.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "nn/checkpointed_forward.hpp"
#include "nn/early_stop.hpp"
#include "nn/module.hpp"
#include "tensor/autograd/backward.hpp"
#include "tensor/tree.hpp"
#include "trace/span.hpp"

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

// Makes the same structure with empty tensors that only have requires_grad, to be kept by the graph.
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

c10::IValue Module::forward(const Inputs&) {
  fail(Status::kInvalidState, "a module of kind '", kind_, "' has no forward; set one, or call its children");
}

c10::IValue Module::call(const Inputs& inputs) {
  if (hooks_after_errors_ == 0) return call_between_hooks(inputs);
  try {
    return call_between_hooks(inputs);
  } catch (...) {
    run_hooks_after_error(inputs);
    throw;
  }
}

c10::IValue Module::call_between_hooks(const Inputs& inputs) {
  std::optional<Span> recorded;
  if (Spans::has_modules()) recorded.emplace(SpanKind::kModule, kind_);
  // By index, and with a reference to each hook, because hooks may add and remove hooks.
  Inputs replaced;
  const Inputs* current = &inputs;
  for (size_t i = 0; i < pre_hooks_.size();) {
    const auto hook = pre_hooks_[i].hook;
    if (auto result = (*hook)(*this, *current)) {
      replaced = std::move(*result);
      current = &replaced;
    }
    i = next_hook(pre_hooks_, i, hook);
  }
  const bool is_watched = !(backward_pre_hooks_.empty() && backward_hooks_.empty()) && at::GradMode::is_enabled();
  bool inputs_need_none = false;
  if (is_watched && !backward_hooks_.empty()) {
    const std::vector<at::Tensor> tensors = differentiable(*current);
    inputs_need_none = tensors.empty();
    if (!inputs_need_none) {
      replaced = watch_inputs(*current, tensors);
      current = &replaced;
    }
  }
  c10::IValue output = forward_between_hooks(*current);
  for (size_t i = 0; i < post_hooks_.size();) {
    const auto hook = post_hooks_[i].hook;
    if (auto result = (*hook)(*this, *current, output)) output = std::move(*result);
    i = next_hook(post_hooks_, i, hook);
  }
  return is_watched ? watch_output(output, inputs_need_none) : output;
}

c10::IValue Module::call(Inputs inputs, const NamedInputs& named) {
  if (named.empty()) return call(inputs);
  const std::vector<std::string> names = input_names();
  std::vector<bool> given(inputs.size(), true);
  for (const auto& [name, value] : named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      std::string known;
      for (const std::string& other : names) known += (known.empty() ? "" : ", ") + other;
      fail(Status::kNotFound, "a module of kind '", kind_, "' has no input '", name, "'; ",
           known.empty() ? "its inputs have no names" : "its inputs are " + known);
    }
    const auto place = static_cast<size_t>(found - names.begin());
    for (size_t i = inputs.size(); i <= place; i++) {
      inputs.push_back(i == place ? value : absent_input(i));
      given.push_back(false);
    }
    require(!given[place], Status::kInvalidArgument, "the input '", name, "' of a module of kind '", kind_,
            "' was given twice; expected it once, by place or by name");
    inputs[place] = value;
    given[place] = true;
  }
  return call(inputs);
}

Inputs Module::run_backward_hooks(const std::vector<Registered<BackwardHook>>& hooks, Module& module,
                                  Inputs gradients) {
  for (size_t i = 0; i < hooks.size();) {
    const auto hook = hooks[i].hook;
    if (auto result = (*hook)(module, gradients)) gradients = std::move(*result);
    i = next_hook(hooks, i, hook);
  }
  return gradients;
}

// The graph owns the module, not the other way round.
Inputs Module::watch_inputs(const Inputs& inputs, const std::vector<at::Tensor>& tensors) {
  const auto watched = tensor::watch_gradients(
      tensors, [self = shared_from_this(), like = detached_like(inputs)](const std::vector<at::Tensor>& gradients) {
        const Inputs kept = run_backward_hooks(self->backward_hooks_, *self, gradients_like(like, gradients));
        return gradients_of(like, kept, self->kind_);
      });
  return exchange(inputs, watched, [](const at::Tensor& tensor) { return tensor; });
}

c10::IValue Module::watch_output(const c10::IValue& output, bool after_too) {
  const std::vector<at::Tensor> tensors = differentiable({output});
  if (tensors.empty()) return output;
  const auto watched = tensor::watch_gradients(tensors, [self = shared_from_this(), like = detached_like({output}),
                                                         after_too](const std::vector<at::Tensor>& gradients) {
    const Inputs kept = run_backward_hooks(self->backward_pre_hooks_, *self, gradients_like(like, gradients));
    if (after_too) run_backward_hooks(self->backward_hooks_, *self, {});
    return gradients_of(like, kept, self->kind_);
  });
  return exchange({output}, watched, [](const at::Tensor& tensor) { return tensor; })[0];
}

c10::IValue Module::run_forward(const Inputs& inputs) {
  if (no_grad_) {
    const at::NoGradGuard no_grad;
    return forward(inputs);
  }
  if (checkpointing_ == nullptr || !at::GradMode::is_enabled()) return forward(inputs);
  return checkpointed_forward(*this, inputs, checkpointing_, [this](const Inputs& same) { return forward(same); });
}

c10::IValue Module::forward_between_hooks(const Inputs& inputs) {
  if (post_hooks_.empty()) return run_forward(inputs);
  try {
    return run_forward(inputs);
  } catch (const EarlyStop&) {
    run_placement_hooks_after_stop(inputs);
    throw;
  }
}

void Module::run_placement_hooks_after_stop(const Inputs& inputs) {
  for (size_t i = 0; i < post_hooks_.size();) {
    const auto hook = post_hooks_[i].hook;
    if (post_hooks_[i].order == HookOrder::kPlacement && !post_hooks_[i].after_errors) (*hook)(*this, inputs, {});
    i = next_hook(post_hooks_, i, hook);
  }
}

void Module::run_hooks_after_error(const Inputs& inputs) noexcept {
  for (size_t i = 0; i < post_hooks_.size();) {
    const auto hook = post_hooks_[i].hook;
    if (post_hooks_[i].after_errors) try {
        (*hook)(*this, inputs, {});
      } catch (...) {
        // The first error is the one to report.
      }
    i = next_hook(post_hooks_, i, hook);
  }
}

at::Tensor Module::call(const at::Tensor& input) {
  c10::IValue output = call(Inputs{input});
  if (!output.isTensor())
    fail(Status::kTypeMismatch, "a module of kind '", kind_, "' returned a ", tree::kind_name(output),
         "; expected a tensor");
  return std::move(output).toTensor();
}

template <typename Hook, typename Precedes>
int64_t Module::add_hook(std::vector<Registered<Hook>>& hooks, Hook hook, HookOrder order, const Precedes& precedes,
                         bool after_errors) {
  check_hookable();
  const auto place =
      std::find_if(hooks.begin(), hooks.end(), [&](const auto& other) { return precedes(order, other.order); });
  hooks.insert(place, {next_hook_, order, std::make_shared<const Hook>(std::move(hook)), after_errors});
  hooks_after_errors_ += after_errors ? 1 : 0;
  return next_hook_++;
}

int64_t Module::add_pre_hook(PreHook hook, HookOrder order) {
  return add_hook(pre_hooks_, std::move(hook), order, std::less<>());
}

int64_t Module::add_post_hook(PostHook hook, HookOrder order, bool after_errors) {
  return add_hook(post_hooks_, std::move(hook), order, std::greater<>(), after_errors);
}

int64_t Module::add_backward_pre_hook(BackwardHook hook) {
  return add_hook(backward_pre_hooks_, std::move(hook), HookOrder::kProgram, std::less<>());
}

int64_t Module::add_backward_hook(BackwardHook hook) {
  return add_hook(backward_hooks_, std::move(hook), HookOrder::kProgram, std::less<>());
}

bool Module::remove_hook(int64_t id) {
  int& count = hooks_after_errors_;
  return remove_by_id(pre_hooks_, id, count) || remove_by_id(post_hooks_, id, count) ||
         remove_by_id(backward_pre_hooks_, id, count) || remove_by_id(backward_hooks_, id, count);
}

void Module::set_activation_checkpointing(std::shared_ptr<const ActivationCheckpointingSettings> settings) {
  check_hookable();
  checkpointing_ = std::move(settings);
}

void Module::set_no_grad(bool no_grad) {
  check_hookable();
  no_grad_ = no_grad;
}

}  // namespace accel::nn
