// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/auto_wrap.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/regular_expression.hpp"
#include "config/fsdp_settings.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/activation_checkpointing.hpp"

namespace accel::parallel {
namespace {

using Paths = std::set<std::string>;

// Containers are not called, so their hooks would not run.
bool is_container(const nn::Module& module) {
  constexpr const char* kKinds[] = {"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"};
  return std::find(std::begin(kKinds), std::end(kKinds), module.kind()) != std::end(kKinds);
}

Paths modules_of_classes(const nn::Module& model, const std::string& list, const char* field) {
  const std::vector<std::string> given = class_names(list, field);
  const std::set<std::string> names(given.begin(), given.end());
  Paths paths;
  std::set<std::string> known, found;
  for (const auto& [path, module] : nn::named_modules(model)) {
    known.insert(module->kind());
    if (names.count(module->kind()) == 0) continue;
    found.insert(module->kind());
    if (!is_container(*module)) paths.insert(path);
  }
  for (const std::string& name : names) {
    if (found.count(name) != 0) continue;
    std::string kinds;
    for (const std::string& kind : known) kinds += (kinds.empty() ? "" : ", ") + kind;
    fail(Status::kNotFound, field, " has '", name, "', and no module is of that class; the model has ", kinds);
  }
  return paths;
}

// Children first; what they have taken does not count for their parents. The rule is that of torch's
// size_based_auto_wrap_policy, but that nothing inside of a leaf is looked at.
class SizeBasedWrap {
 public:
  SizeBasedWrap(int64_t min_num_params, Paths leaves) : min_num_params_(min_num_params), leaves_(std::move(leaves)) {}

  Paths paths_of(const nn::Module& model) {
    visit("", model);
    return std::move(paths_);
  }

 private:
  // How many parameters are left to the parent.
  int64_t visit(const std::string& path, const nn::Module& module) {
    int64_t left = 0;
    const bool is_leaf = leaves_.count(path) != 0;
    if (!is_leaf)
      for (const auto& [name, child] : module.children()) left += visit(nn::join_path(path, name), *child);
    // Ranks with parts of other sizes make the same groups.
    const nn::Placements placements = nn::placements(module);
    for (const auto& [name, tensor] : nn::named_parameters(module))
      if ((is_leaf || name.find('.') == std::string::npos) && counted_.insert(tensor.unsafeGetTensorImpl()).second) {
        const tensor::PlacementPtr placement = placements.find(tensor);
        left += placement == nullptr ? tensor.numel() : c10::multiply_integers(placement->shape);
      }
    const bool is_group = is_leaf || (min_num_params_ > 0 && left >= min_num_params_ && !is_container(module));
    if (!is_group) return left;
    paths_.insert(path);
    return 0;
  }

  const int64_t min_num_params_;  // 0: only leaves are groups
  const Paths leaves_;
  Paths paths_;
  std::unordered_set<const at::TensorImpl*> counted_;
};

Paths chosen_modules(const nn::Module& model, const FsdpSettings& settings) {
  Paths paths;
  if (settings.auto_wrap_policy == AutoWrapPolicy::kTransformerBasedWrap) {
    require(!settings.transformer_cls_names_to_wrap.value.empty(), Status::kInvalidArgument,
            "auto_wrap_policy is TRANSFORMER_BASED_WRAP and transformer_cls_names_to_wrap is empty; expected the "
            "classes of the model's blocks");
    paths = modules_of_classes(model, settings.transformer_cls_names_to_wrap, "transformer_cls_names_to_wrap");
  } else if (settings.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap) {
    Paths leaves = modules_of_classes(model, settings.leaf_module_classes, "leaf_module_classes");
    paths = SizeBasedWrap(settings.min_num_params, std::move(leaves)).paths_of(model);
  }
  paths.insert("");
  return paths;
}

bool is_within(const std::string& path, const std::string& folder) {
  return folder.empty() || path == folder ||
         (path.compare(0, folder.size(), folder) == 0 && path[folder.size()] == '.');
}

// The innermost of `paths` that contains the module.
std::string wrapper_of(const std::string& path, const Paths& paths) {
  std::string innermost;
  for (const std::string& candidate : paths)
    if (candidate.size() > innermost.size() && is_within(path, candidate)) innermost = candidate;
  return innermost;
}

// The innermost of `paths` that contains both.
std::string joint_wrapper(std::string a, const std::string& b, const Paths& paths) {
  while (!is_within(b, a)) {
    const size_t dot = a.rfind('.');
    a = wrapper_of(dot == std::string::npos ? "" : a.substr(0, dot), paths);
  }
  return a;
}

}  // namespace

std::vector<WrappedModule> wrap_modules(const nn::ModulePtr& model, const FsdpSettings& settings,
                                        const std::string& apart) {
  Paths paths = chosen_modules(*model, settings);
  for (const auto& [path, module] : nn::named_modules(*model))
    for (size_t i = 0; i < module->direct_parameters().size(); i++)
      if (const auto placed = module->placement(i); placed != nullptr && tensor::has_any_axis(placed->axes, apart))
        paths.insert(path);
  const std::string& expression = settings.ignored_modules.value;
  std::optional<RegularExpression> ignored;
  if (!expression.empty())
    ignored.emplace(expression, text("ignored_modules is '", expression, "'"), "the whole names of modules");
  struct Place {
    std::string name, wrapper;
    at::Tensor tensor;
    bool is_ignored;
  };
  std::vector<Place> places;
  std::unordered_map<const at::TensorImpl*, size_t> known;
  Paths ignored_paths;
  for (const auto& [path, module] : nn::children_bottom_up(*model)) {
    bool is_ignored = false;
    if (ignored)
      for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
        is_ignored = is_ignored || ignored->matches(path.substr(0, end));
        if (end == std::string::npos) break;
      }
    for (const auto& [name, tensor] : nn::named_parameters(*module)) {
      if (name.find('.') != std::string::npos) continue;
      const auto [place, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), places.size());
      std::string whole_name = nn::join_path(path, name);
      const bool is_left_out = is_ignored || (ignored && ignored->matches(whole_name));
      if (is_new) {
        places.push_back({std::move(whole_name), wrapper_of(path, paths), tensor, is_left_out});
        continue;
      }
      Place& former = places[place->second];
      former.wrapper = joint_wrapper(former.wrapper, wrapper_of(path, paths), paths);
      former.is_ignored = former.is_ignored || is_left_out;
    }
  }
  std::vector<WrappedModule> wrapped;
  std::unordered_set<const nn::Module*> seen;
  for (const auto& [path, module] : nn::children_bottom_up(*model)) {
    if (paths.count(path) == 0 || !seen.insert(module).second) continue;
    WrappedModule entry{path, model->find(path), {}};
    for (const Place& place : places)
      if (place.wrapper == path && !place.is_ignored) entry.parameters.emplace_back(place.name, place.tensor);
    wrapped.push_back(std::move(entry));
  }
  return wrapped;
}

std::vector<size_t> registration_order(const nn::Module& model, const std::vector<WrappedModule>& modules) {
  std::unordered_map<const nn::Module*, size_t> numbers;
  for (size_t i = 0; i < modules.size(); i++) numbers.emplace(modules[i].module.get(), i);
  std::vector<size_t> order;
  for (const auto& [path, module] : nn::named_modules(model))
    if (const auto found = numbers.find(module); found != numbers.end()) order.push_back(found->second);
  return order;
}

void checkpoint_wrapped_modules(const nn::ModulePtr& model, const FsdpSettings& settings) {
  ActivationCheckpointingSettings checkpointing;
  checkpointing.offload = settings.activation_checkpointing_offload.value;
  const std::vector<WrappedModule> wrapped = wrap_modules(model, settings);
  for (const WrappedModule& inner : wrapped)
    if (wrapped.size() == 1 || inner.module != model) nn::checkpoint_activations(*inner.module, checkpointing);
}

}  // namespace accel::parallel
