// SPDX-License-Identifier: Apache-2.0
#include "nn/adapters/lora_targets.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <unordered_set>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "base/regular_expression.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

constexpr const char* kAllLinear = "all-linear";

bool is_name_end(const std::string& name, const std::string& ending) {
  if (name == ending) return true;
  if (name.size() <= ending.size()) return false;
  const size_t begin = name.size() - ending.size();
  return name[begin - 1] == '.' && name.compare(begin, ending.size(), ending) == 0;
}

// A pattern whose expression is compiled.
class LayerPatterns {
 public:
  LayerPatterns(const NamePattern& pattern, const char* field) : endings_(pattern.endings) {
    if (!pattern.expression.empty())
      expression_.emplace(pattern.expression, text(field, " is '", pattern.expression, "'"), "names of modules");
  }

  bool match(const std::string& name) const {
    return expression_ ? expression_->matches(name) : ends_with_any(name, endings_);
  }

 private:
  const std::vector<std::string>& endings_;
  std::optional<RegularExpression> expression_;
};

// The number of the layer that a module is in; nothing if its name has none behind one of the patterns.
std::optional<int64_t> layer_of(const std::string& name, const std::vector<std::string>& patterns) {
  std::vector<std::string> parts(1);
  for (const char character : name) {
    if (character == '.')
      parts.emplace_back();
    else
      parts.back() += character;
  }
  for (size_t i = parts.size() - 1; i-- > 1;) {
    const std::string& part = parts[i];
    const bool is_number = !part.empty() && part.size() < 10 &&
                           std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    const bool follows =
        patterns.empty() || std::find(patterns.begin(), patterns.end(), parts[i - 1]) != patterns.end();
    if (is_number && follows) return std::strtoll(part.c_str(), nullptr, 10);
  }
  return std::nullopt;
}

template <typename Number>
Number value_for(const std::string& name, const std::vector<std::pair<std::string, Number>>& patterns,
                 const char* field, Number otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (RegularExpression("(.*\\.)?(" + pattern + ")", text(field, " has '", pattern, "'"), "names of modules")
            .matches(name))
      return value;
  return otherwise;
}

LoraShape shape_for(const std::string& name, const LoraConfig& config) {
  LoraShape shape = config.shape;
  shape.rank = value_for(name, config.ranks, "rank_pattern", shape.rank);
  require(shape.rank >= 1, Status::kInvalidArgument, "the rank of '", name, "' is ", shape.rank,
          "; expected at least 1");
  const double alpha = value_for(name, config.alphas, "alpha_pattern", config.alpha);
  const auto rank = static_cast<double>(shape.rank);
  shape.scale = alpha / (config.divides_by_root ? std::sqrt(rank) : rank);
  return shape;
}

bool is_chosen_layer(const std::string& name, const LoraConfig& config) {
  if (config.layers.empty()) return true;
  const std::optional<int64_t> layer = layer_of(name, config.layers_patterns);
  return layer && std::find(config.layers.begin(), config.layers.end(), *layer) != config.layers.end();
}

// The name of a linear layer, for errors.
std::string example_name(const Module& model) {
  for (const auto& [name, module] : named_modules(model))
    if (dynamic_cast<const Projection*>(module) != nullptr) return name;
  return "layers.0.linear";
}

}  // namespace

bool is_of_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

bool ends_with_any(const std::string& name, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const auto& ending) { return is_name_end(name, ending); });
}

std::vector<LoraTarget> lora_targets(Module& model, const LoraConfig& config) {
  require(!config.targets.is_empty(), Status::kInvalidArgument,
          "target_modules is empty; expected names of linear layers, such as 'q_proj', or 'all-linear'");
  const bool takes_all = config.targets.expression.empty() && config.targets.endings.size() == 1 &&
                         config.targets.endings.front() == kAllLinear;
  const LayerPatterns chosen(config.targets, "target_modules"), excluded(config.excluded, "exclude_modules");
  std::vector<LoraTarget> targets;
  std::string other;  // a module that is no projection
  for (const auto& [name, module] : named_modules(model)) {
    const auto projection =
        std::dynamic_pointer_cast<Projection>(std::const_pointer_cast<Module>(module->shared_from_this()));
    const bool fits = takes_all ? projection != nullptr && name.find('.') != std::string::npos : chosen.match(name);
    if (name.empty() || is_of_adapter(name) || !fits || excluded.match(name) || !is_chosen_layer(name, config))
      continue;
    if (projection == nullptr) {
      other = text("'", name, "', a ", module->kind());
      continue;
    }
    require(!projection->is_split(), Status::kUnsupported, "'", name,
            "' is split over ranks; expected that adapters are added to a whole model");
    require(projection->placement(Projection::kWeight) == nullptr, Status::kInvalidState, "the weight of '", name,
            "' is sharded; expected that adapters are added before the model is prepared");
    targets.push_back({name, projection, shape_for(name, config)});
  }
  require(other.empty(), Status::kUnsupported, "target_modules has ", other,
          "; expected linear layers, which alone can have adapters");
  require(
      !targets.empty(), Status::kNotFound, "target_modules is ",
      config.targets.expression.empty() ? list_names(config.targets.endings) : "'" + config.targets.expression + "'",
      " and fits no linear layer of the model; expected the end of a name such as '", example_name(model), "'");
  return targets;
}

}  // namespace accel::nn
