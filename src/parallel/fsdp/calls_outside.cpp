// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/calls_outside.hpp"

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

#include "base/error.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {

void watch_calls_outside(nn::Module& model, const std::vector<WrappedModule>& modules,
                         const std::vector<std::unique_ptr<ParameterGroup>>& groups, const ScheduleExecutor& executor,
                         ModuleHooks& hooks) {
  struct Place {
    size_t group;
    std::string name;
  };
  std::unordered_map<const at::TensorImpl*, Place> places;
  for (size_t group = 0; group < groups.size(); group++)
    for (const auto& parameter : groups[group]->parameters())
      places[parameter->tensor().unsafeGetTensorImpl()] = {group, parameter->name()};
  for (const auto& [path, found] : nn::named_modules(model)) {
    std::vector<Place> used;
    for (const auto& [name, parameter] : nn::named_parameters(*found)) {
      if (name.find('.') != std::string::npos) continue;
      const auto place = places.find(parameter.unsafeGetTensorImpl());
      if (place != places.end() && modules[place->second.group].module.get() != found) used.push_back(place->second);
    }
    if (used.empty()) continue;
    const nn::ModulePtr watched = model.find(path);
    const auto check = [&executor, path = path, used](nn::Module&, const nn::Inputs&) {
      for (const Place& place : used)
        require(
            executor.is_unsharded(place.group), Status::kInvalidState, "'", place.name, "' of the module '", path,
            "' is not gathered, because the module was called outside of its model; expected a call of the prepared "
            "model, or a policy of auto_wrap_policy by which this module has a group of its own");
      return std::nullopt;
    };
    try {
      hooks.add(watched, watched->hooks().add_pre_hook(check, nn::HookOrder::kPlacement));
    } catch (const Error& error) {
      if (error.status() != Status::kUnsupported) throw;  // within TorchScript nobody can call it
    }
  }
}

}  // namespace accel::parallel
