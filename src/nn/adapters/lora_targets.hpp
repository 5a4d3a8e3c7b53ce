// SPDX-License-Identifier: Apache-2.0
// LoRA targets: which projections of a model get an adapter, and with which numbers. The rules for names are those of
// PEFT's LoraConfig (https://huggingface.co/docs/peft/package_reference/lora).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/adapters/lora.hpp"
#include "nn/layers/projection.hpp"

namespace accel::nn {

// Names of modules: those that end with one of a list, after a dot or whole; or that a regular expression matches
// whole.
struct NamePattern {
  std::vector<std::string> endings;
  std::string expression;  // empty: the list counts

  bool is_empty() const { return endings.empty() && expression.empty(); }
};

struct LoraConfig {
  LoraShape shape;  // scale is computed from the two below
  double alpha = 8;
  bool divides_by_root = false;  // alpha / sqrt(rank), instead of alpha / rank
  // "all-linear" among the endings: all but children of the model itself, such as lm_head.
  NamePattern targets, excluded;
  std::vector<int64_t> layers;               // numbers in names, as in "model.layers.3.mlp"; empty: all
  std::vector<std::string> layers_patterns;  // what stands before the number; empty: anything
  // By the ends of names, which are regular expressions; the first that fits counts.
  std::vector<std::pair<std::string, int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  std::string bias = "none";                 // "none", "all", or "lora_only": which biases are trained, too
  std::vector<std::string> modules_to_save;  // modules that are trained whole and saved with the adapter
};

struct LoraTarget {
  std::string name;
  std::shared_ptr<Projection> projection;
  LoraShape shape;
};

// The parts of other adapters are none. An error unless there is at least one. A name that fits a module which is no
// projection is an error, too.
std::vector<LoraTarget> lora_targets(Module& model, const LoraConfig& config);

// Whether a module or parameter with this name is part of an adapter.
bool is_of_adapter(const std::string& name);
// Whether the name is one of the endings, or ends with a dot and one.
bool ends_with_any(const std::string& name, const std::vector<std::string>& endings);

}  // namespace accel::nn
