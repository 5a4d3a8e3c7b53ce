// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantized_layers.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "base/text_ends.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/encoded_tensors.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"
#include "nn/tied_parameters.hpp"

namespace accel::nn {
namespace {

std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

std::string module_path(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

// Layers whose weights other modules read, or whose numbers choose experts.
std::unordered_set<const Module*> unquantized_parts(const Module& model) {
  std::unordered_set<const Module*> parts;
  for (const auto& [path, module] : named_modules(model)) {
    if (module->kind() != "MixtureOfExperts") continue;
    for (const auto& [name, child] : module->children())
      if (name == "gate" || name == "shared_expert_gate") parts.insert(child.get());
  }
  return parts;
}

void require_names(const NamedModules& modules, const std::vector<std::string>& names, const char* option) {
  for (const std::string& name : names) {
    const bool is_known = std::any_of(modules.begin(), modules.end(), [&](const auto& entry) {
      return !entry.first.empty() && is_left_out(entry.first, {name});
    });
    require(is_known, Status::kNotFound, option, " has '", name,
            "', which is no module of the model; expected names of modules or parts of their paths");
  }
}

}  // namespace

bool is_left_out(const std::string& path, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return path == name || last_name(path) == name || path.find(name + ".") != std::string::npos;
  });
}

std::vector<std::string> keys_not_to_convert(const Module& model) {
  std::vector<std::string> keys;
  for (const std::vector<std::string>& group : find_tied_parameters(model))
    for (const std::string& name : group) keys.push_back(module_path(name));
  if (keys.empty() && ends_with(model.kind(), "Model")) return keys;
  if (!model.children().empty()) {
    const std::string& last = model.children().back().first;
    if (std::find(keys.begin(), keys.end(), last) == keys.end()) keys.push_back(last);
  }
  return keys;
}

std::vector<QuantizedLayer> select_quantized_layers(Module& model, const QuantizationOptions& options) {
  const NamedModules modules = named_modules(model);
  if (options.skip_modules) require_names(modules, *options.skip_modules, "skip_modules");
  require_names(modules, options.keep_in_fp32_modules, "keep_in_fp32_modules");
  std::vector<std::string> left_out = options.skip_modules.value_or(keys_not_to_convert(model));
  left_out.insert(left_out.end(), options.keep_in_fp32_modules.begin(), options.keep_in_fp32_modules.end());
  std::unordered_map<std::string, std::string> tied;
  for (const std::vector<std::string>& group : find_tied_parameters(model))
    for (const std::string& name : group) tied.emplace(name, name == group.front() ? group.back() : group.front());
  const auto parts = unquantized_parts(model);
  std::vector<QuantizedLayer> layers;
  for (const auto& [path, module] : modules) {
    const bool is_table = dynamic_cast<const Embedding*>(module) != nullptr;
    const auto* const projection = dynamic_cast<const Projection*>(module);
    const bool is_linear = projection != nullptr && projection->product_name().empty();
    if (!is_linear && !(is_table && options.embeddings)) continue;
    if (parts.count(module) > 0 || is_left_out(path, left_out)) continue;
    const std::string weight = join_path(path, "weight");
    const auto other = tied.find(weight);
    require(other == tied.end(), Status::kInvalidArgument, "'", weight, "' is tied to '",
            other == tied.end() ? "" : other->second, "', and would be quantized alone; expected it in skip_modules");
    require(encoded_weight(*module) == nullptr, Status::kInvalidState, "'", path,
            "' is quantized already; expected a model with ordinary weights");
    layers.push_back({path, const_cast<Module*>(module)->shared_from_this()});
  }
  require(!layers.empty(), Status::kInvalidArgument, "the model of kind '", model.kind(),
          "' has no linear layer to quantize but those in ", list_names(left_out),
          "; expected one, or other names in skip_modules");
  return layers;
}

}  // namespace accel::nn
