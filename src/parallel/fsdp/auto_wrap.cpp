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
#include "nn/activation_checkpointing.hpp"

namespace accel::parallel {
namespace {

using Paths = std::set<std::string>;

// Containers are not called, so their hooks would not run.
bool is_container(const nn::Module& module) {
  constexpr const char* kKinds[] = {"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"};
  return std::find(std::begin(kKinds), std::end(kKinds), module.kind()) != std::end(kKinds);
}

Paths modules_of_classes(const nn::Module& model, const std::string& list) {
  const std::vector<std::string> given = class_names(list, "transformer_cls_names_to_wrap");
  const std::set<std::string> names(given.begin(), given.end());
  require(
      !names.empty(), Status::kInvalidArgument,
      "auto_wrap_policy is TRANSFORMER_BASED_WRAP and transformer_cls_names_to_wrap is empty; expected the classes of "
      "the model's blocks");
  Paths paths;
  std::set<std::string> known, found;
  for (const auto& [path, module] : model.named_modules()) {
    known.insert(module->kind());
    if (names.count(module->kind()) == 0) continue;
    found.insert(module->kind());
    if (!is_container(*module)) paths.insert(path);
  }
  for (const std::string& name : names) {
    if (found.count(name) != 0) continue;
    std::string kinds;
    for (const std::string& kind : known) kinds += (kinds.empty() ? "" : ", ") + kind;
    fail(Status::kNotFound, "transformer_cls_names_to_wrap has '", name,
         "', and no module is of that class; the model has ", kinds);
  }
  return paths;
}

// Children first; what they have taken does not count for their parents. As size_based_auto_wrap_policy of torch.
int64_t wrap_by_size(const std::string& path, const nn::Module& module, int64_t min_num_params, Paths& paths,
                     std::unordered_set<const at::TensorImpl*>& counted) {
  int64_t left = 0;
  for (const auto& [name, child] : module.children())
    left += wrap_by_size(path.empty() ? name : path + "." + name, *child, min_num_params, paths, counted);
  for (const auto& [name, tensor] : module.named_parameters())
    if (name.find('.') == std::string::npos && counted.insert(tensor.unsafeGetTensorImpl()).second)
      left += tensor.numel();
  if (left < min_num_params || is_container(module)) return left;
  paths.insert(path);
  return 0;
}

Paths chosen_modules(const nn::Module& model, const FsdpSettings& settings) {
  Paths paths;
  if (settings.auto_wrap_policy == AutoWrapPolicy::kTransformerBasedWrap) {
    paths = modules_of_classes(model, settings.transformer_cls_names_to_wrap);
  } else if (settings.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap && settings.min_num_params > 0) {
    std::unordered_set<const at::TensorImpl*> counted;
    wrap_by_size("", model, settings.min_num_params, paths, counted);
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

std::vector<WrappedModule> wrap_modules(const nn::ModulePtr& model, const FsdpSettings& settings) {
  const Paths paths = chosen_modules(*model, settings);
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
  for (const auto& [path, module] : model->children_bottom_up()) {
    bool is_ignored = false;
    if (ignored)
      for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
        is_ignored = is_ignored || ignored->matches(path.substr(0, end));
        if (end == std::string::npos) break;
      }
    for (const auto& [name, tensor] : module->named_parameters()) {
      if (name.find('.') != std::string::npos) continue;
      const auto [place, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), places.size());
      std::string whole_name = path.empty() ? name : path + "." + name;
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
  for (const auto& [path, module] : model->children_bottom_up()) {
    if (paths.count(path) == 0 || !seen.insert(module).second) continue;
    WrappedModule entry{path, model->find(path), {}};
    for (const Place& place : places)
      if (place.wrapper == path && !place.is_ignored) entry.parameters.emplace_back(place.name, place.tensor);
    wrapped.push_back(std::move(entry));
  }
  return wrapped;
}

void checkpoint_wrapped_modules(const nn::ModulePtr& model, const FsdpSettings& settings) {
  ActivationCheckpointingSettings checkpointing;
  checkpointing.offload = settings.activation_checkpointing_offload.value;
  const std::vector<WrappedModule> wrapped = wrap_modules(model, settings);
  for (const WrappedModule& inner : wrapped)
    if (wrapped.size() == 1 || inner.module != model) nn::checkpoint_activations(*inner.module, checkpointing);
}

}  // namespace accel::parallel
