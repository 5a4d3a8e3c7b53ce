// SPDX-License-Identifier: Apache-2.0
// Calls of modules: runs the hooks around the forward and the backward.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "nn/call_path.hpp"
#include "nn/module.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/checkpointed_forward.hpp"
#include "nn/recompute/early_stop.hpp"
#include "tensor/tree.hpp"
#include "trace/span.hpp"

namespace accel::nn {
namespace {

// A prepared model and the like, which no path of the program names.
bool is_wrapper(const Module& module) {
  return module.children().size() == 1 && module.children().front().first == "module";
}

}  // namespace

std::string in_called_module() {
  std::vector<const Module*> modules;  // the innermost first
  for (const OpenCall* call = OpenCall::innermost; call != nullptr; call = call->outer_)
    modules.push_back(&call->module_);
  if (modules.empty()) return {};
  for (auto outer = modules.rbegin(); outer != modules.rend(); ++outer) {
    if (is_wrapper(**outer)) continue;
    for (const auto& [name, module] : named_modules(**outer))
      if (module == modules.front() && !name.empty()) return text("in '", name, "': ");
  }
  return text("in a module of kind '", modules.front()->kind(), "': ");
}

c10::IValue Module::forward(const Inputs&) {
  fail(Status::kInvalidState, "a module of kind '", kind(), "' has no forward; set one, or call its children");
}

c10::IValue Module::call(const Inputs& inputs) {
  const OpenCall open(*this);
  if (!hooks_.has_hooks_after_errors()) return call_between_hooks(inputs);
  try {
    return call_between_hooks(inputs);
  } catch (...) {
    hooks_.run_hooks_after_error(inputs);
    throw;
  }
}

c10::IValue Module::call_between_hooks(const Inputs& inputs) {
  std::optional<Span> recorded;
  if (Spans::has_modules()) recorded.emplace(SpanKind::kModule, kind());
  Inputs replaced, watched;
  const Inputs* current = hooks_.run_pre_hooks(inputs, replaced);
  const bool is_watched = hooks_.has_backward_hooks() && at::GradMode::is_enabled();
  bool inputs_need_none = false;
  if (is_watched)
    if (const Inputs* const own = hooks_.watch_inputs(shared_from_this(), *current, watched, inputs_need_none))
      current = own;
  c10::IValue output = forward_between_hooks(*current);
  hooks_.run_post_hooks(*current, output);
  return is_watched ? hooks_.watch_output(shared_from_this(), output, inputs_need_none) : output;
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
      fail(Status::kNotFound, "a module of kind '", kind(), "' has no input '", name, "'; ",
           known.empty() ? "its inputs have no names" : "its inputs are " + known);
    }
    const auto place = static_cast<size_t>(found - names.begin());
    for (size_t i = inputs.size(); i <= place; i++) {
      inputs.push_back(i == place ? value : absent_input(i));
      given.push_back(false);
    }
    require(!given[place], Status::kInvalidArgument, "the input '", name, "' of a module of kind '", kind(),
            "' was given twice; expected it once, by place or by name");
    inputs[place] = value;
    given[place] = true;
  }
  return call(inputs);
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
  if (!hooks_.has_post_hooks()) return run_forward(inputs);
  try {
    return run_forward(inputs);
  } catch (const EarlyStop&) {
    hooks_.run_placement_hooks_after_stop(inputs);
    throw;
  }
}

at::Tensor Module::call(const at::Tensor& input) {
  c10::IValue output = call(Inputs{input});
  if (!output.isTensor())
    fail(Status::kTypeMismatch, "a module of kind '", kind(), "' returned a ", tree::kind_name(output),
         "; expected a tensor");
  return std::move(output).toTensor();
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
