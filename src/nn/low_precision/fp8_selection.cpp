// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_selection.hpp"

#include <algorithm>
#include <optional>
#include <regex>
#include <unordered_set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

constexpr int64_t kMultiple = 16;  // of the sizes that tensor cores multiply in 8 bits

struct LinearLayer {
  std::string name;
  at::Tensor weight;
  int64_t output_dim;  // of the weight
  std::string reason;  // to leave it out; empty: none
};

// The product of this library's attention has a name of its own there.
bool is_attention(const Module& module) { return module.kind() == "SelfAttention"; }

at::Tensor matrix_weight(const Module& module) {
  const char* const wanted = is_attention(module) ? "in_proj_weight" : "weight";
  for (const auto& [name, parameter] : module.direct_parameters())
    if (name == wanted && parameter.dim() == 2 && parameter.is_floating_point()) return parameter;
  return {};
}

// Also that of another library which has the name.
int64_t output_dim_of(const Module& module) { return module.kind() == "Conv1D" ? 1 : 0; }

// Each weight once.
std::vector<LinearLayer> linear_layers(const Module& model) {
  constexpr const char* kEmbedding = "Embedding";
  const NamedModules modules = named_modules(model);
  std::unordered_set<const at::TensorImpl*> tables, seen;
  std::unordered_set<const Module*> routers;
  for (const auto& [_, module] : modules) {
    if (module->kind() == kEmbedding)
      for (const auto& [name, parameter] : module->direct_parameters()) tables.insert(parameter.unsafeGetTensorImpl());
    if (module->kind() != "MixtureOfExperts") continue;
    for (const auto& [name, child] : module->children())
      if (name == "gate") routers.insert(child.get());
  }
  std::vector<LinearLayer> layers;
  for (const auto& [name, module] : modules) {
    const at::Tensor weight = matrix_weight(*module);
    if (!weight.defined() || module->kind() == kEmbedding || !seen.insert(weight.unsafeGetTensorImpl()).second)
      continue;
    layers.push_back({is_attention(*module) ? join_path(name, "in_proj") : name, weight, output_dim_of(*module), {}});
    if (tables.count(weight.unsafeGetTensorImpl()) > 0) layers.back().reason = "its weight is an embedding's, too";
    if (routers.count(module) > 0) layers.back().reason = "it chooses the experts of tokens";
  }
  return layers;
}

std::optional<std::regex> regex_of(const std::string& names) {
  if (names.empty()) return std::nullopt;
  try {
    return std::regex(names);
  } catch (const std::regex_error& error) {
    fail(Status::kInvalidArgument, "skip_names is '", names, "', which is no regular expression: ", error.what(),
         "; expected one of whole names of modules, such as 'head|.*\\.gate'");
  }
}

bool has_whole_sizes(const LinearLayer& layer, const precision::Fp8Recipe& recipe) {
  const int64_t outputs = layer.weight.size(layer.output_dim), features = layer.weight.size(1 - layer.output_dim);
  return outputs % kMultiple == 0 && (features % kMultiple == 0 || recipe.pad_inner_dim);
}

}  // namespace

Fp8Selection select_fp8_layers(const Module& model, const precision::Fp8Recipe& recipe) {
  const std::optional<std::regex> skipped_names = regex_of(recipe.skip_names);
  std::vector<LinearLayer> layers = linear_layers(model);
  if (recipe.skip_first_and_last && !layers.empty()) {
    layers.front().reason = "it is the first linear layer";
    layers.back().reason = "it is the last linear layer";
  }
  Fp8Selection selection;
  std::string of_sizes;
  for (LinearLayer& layer : layers) {
    if (layer.reason.empty() && skipped_names && std::regex_match(layer.name, *skipped_names))
      layer.reason = "skip_names has it";
    if (layer.reason.empty() && !has_whole_sizes(layer, recipe)) {
      layer.reason = text("its weight is ", layer.weight.sizes(), ", whose sizes are no multiples of ", kMultiple);
      of_sizes += text(of_sizes.empty() ? "" : ", ", layer.name, " ", layer.weight.sizes());
    }
    if (layer.reason.empty() && recipe.filter && !recipe.filter(layer.name, layer.weight))
      layer.reason = "the filter leaves it out";
    if (layer.reason.empty())
      selection.layers.emplace_back(layer.name, layer.weight);
    else
      selection.skipped.emplace(layer.name, layer.reason);
  }
  if (!of_sizes.empty())
    log(LogLevel::kWarning, "linear layers that compute in bfloat16 because their sizes are no multiples of ",
        kMultiple, recipe.pad_inner_dim ? "" : " (features may be with pad_inner_dim)", ": ", of_sizes);
  return selection;
}

}  // namespace accel::nn
