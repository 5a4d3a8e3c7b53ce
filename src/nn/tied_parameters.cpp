// SPDX-License-Identifier: Apache-2.0
#include "nn/tied_parameters.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

// Modules that have several parents are visited under each: their parameters have several names.
template <typename Function>
void for_each_parameter(const std::string& prefix, const Module& module, const Function& function) {
  for (const auto& [name, parameter] : module.direct_parameters()) function(prefix + name, parameter);
  for (const auto& [name, child] : module.children()) for_each_parameter(prefix + name + ".", *child, function);
}

}  // namespace

TiedGroups find_tied_parameters(const Module& model) {
  std::unordered_map<const at::TensorImpl*, size_t> numbers;
  TiedGroups groups;
  for_each_parameter("", model, [&](std::string name, const at::Tensor& parameter) {
    const auto [known, is_new] = numbers.emplace(parameter.unsafeGetTensorImpl(), groups.size());
    if (is_new) groups.emplace_back();
    groups[known->second].push_back(std::move(name));
  });
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const auto& names) { return names.size() < 2; }),
               groups.end());
  for (auto& names : groups) std::sort(names.begin(), names.end());
  std::sort(groups.begin(), groups.end());
  return groups;
}

void retie_parameters(Module& model, const TiedGroups& groups) {
  std::unordered_map<std::string, at::Tensor> parameters;
  for_each_parameter("", model, [&parameters](std::string name, const at::Tensor& parameter) {
    parameters.emplace(std::move(name), parameter);
  });
  const auto find = [&parameters](const std::string& name) -> const at::Tensor& {
    const auto found = parameters.find(name);
    require(found != parameters.end(), Status::kNotFound, "parameter '", name,
            "' is not there; expected one of the model");
    return found->second;
  };
  // All checks come before the first change.
  std::vector<std::pair<std::string, std::string>> ties;
  for (const auto& group : groups) {
    const auto source =
        std::find_if(group.begin(), group.end(), [&find](const std::string& name) { return !find(name).is_meta(); });
    if (source == group.end()) continue;
    for (const std::string& name : group) {
      require(find(name).sizes() == find(*source).sizes(), Status::kShapeMismatch, "parameter '", name,
              "' has the shape ", find(name).sizes(), ", '", *source, "' has ", find(*source).sizes(),
              "; tied parameters need the same shape");
      if (name != *source) ties.emplace_back(name, *source);
    }
  }
  for (const auto& [name, source] : ties) nn::tie(model, name, source);
}

}  // namespace accel::nn
