#include "nn/tied_parameters.hpp"

#include "nn/module_walks.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <unordered_map>

namespace accel::nn {
namespace {

using NamesOfTensors = std::unordered_map<const at::TensorImpl*, std::vector<std::string>>;

// Modules that have several parents are visited under each: their parameters have several names.
void collect_parameter_names(const std::string& prefix, const Module& module, NamesOfTensors& names) {
  for (const auto& [name, parameter] : module.direct_parameters())
    names[parameter.unsafeGetTensorImpl()].push_back(prefix + name);
  for (const auto& [name, child] : module.children()) collect_parameter_names(prefix + name + ".", *child, names);
}

}  // namespace

TiedGroups find_tied_parameters(const Module& model) {
  NamesOfTensors names;
  collect_parameter_names("", model, names);
  TiedGroups groups;
  for (auto& [tensor, group] : names) {
    if (group.size() < 2) continue;
    std::sort(group.begin(), group.end());
    groups.push_back(std::move(group));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

void retie_parameters(Module& model, const TiedGroups& groups) {
  for (const auto& group : groups) {
    const auto source = std::find_if(group.begin(), group.end(),
                                     [&](const std::string& name) { return !nn::find_tensor(model, name).is_meta(); });
    if (source == group.end()) continue;
    for (const std::string& name : group)
      if (name != *source) nn::tie(model, name, *source);
  }
}

}  // namespace accel::nn
