// SPDX-License-Identifier: Apache-2.0
// Matched plan: what a plan says of each layer and each parameter of a model that some ranks are to share. Nothing is
// changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "nn/layers/embedding.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module.hpp"
#include "parallel/tensor/plan.hpp"
#include "parallel/tensor/split_parameters.hpp"

namespace accel::parallel {

// A module of the model, with what the plan says of it.
struct PlannedLayer {
  std::string path;
  nn::Module* module = nullptr;
  PlannedLayer* parent = nullptr;  // null: the model
  nn::Projection* projection = nullptr;
  nn::Embedding* embedding = nullptr;
  const SplitRule* rule = nullptr;  // of the layer's product or table

  SplitAlong along() const { return rule == nullptr ? SplitAlong::kNothing : rule->style->along; }
  // Whether the layer's output is split, or its input.
  bool gives_part() const;
  bool takes_part() const;
  // A linear layer by its outputs, which every rank gathers.
  bool gathers_output() const;
  // Experts, of each of which the rank has some features.
  bool has_parts_of_experts() const { return along() == SplitAlong::kExpertFeatures; }
  // A whole embedding of whose output a rank takes its positions.
  bool is_split_output() const;
};

struct PlannedParameter {
  at::Tensor parameter;
  std::vector<int64_t> shape;  // of the whole
  std::string path;
  std::string rule;                 // for messages
  std::optional<DimensionCut> cut;  // nothing: each rank has all of it
  bool sums_gradients = false;      // of which each rank computes a term
  bool has_classes = false;         // one in each row, of a head or of the table that it is tied to
  const PlannedLayer* owner = nullptr;
  bool is_factor = false;  // a matrix with a rule of its own, by which the program's forward multiplies
};

class MatchedPlan {
 public:
  // Fails if the plan does not fit the model, or so many ranks. Sequences of one that `is_stage` may begin and end to
  // be split in other stages.
  MatchedPlan(nn::Module& model, std::vector<SplitRule> plan, int64_t ranks, bool sequence_parallel,
              bool is_stage = false);

  // Parents before children.
  const std::vector<std::unique_ptr<PlannedLayer>>& layers() const { return layers_; }
  // Each once, in the order of the model.
  const std::vector<PlannedParameter>& parameters() const { return parameters_; }
  // The last layer whose output is gathered; null: there is none.
  const PlannedLayer* head() const;
  void require_head() const;

 private:
  void add_layers(nn::Module& module, const std::string& path, PlannedLayer* parent);
  const SplitRule* find_rule(const std::string& path);
  std::string example_path() const;
  void match(PlannedLayer& layer);
  void match_parameters(const PlannedLayer& layer);
  std::optional<DimensionCut> cut_of(const PlannedLayer& layer, const SplitRule& rule, size_t index,
                                     c10::IntArrayRef shape, const std::string& path) const;
  std::optional<DimensionCut> cut_of_experts(const PlannedLayer& layer, const SplitRule& rule, size_t index,
                                             c10::IntArrayRef shape, const std::string& path) const;
  void add(PlannedParameter parameter);
  const PlannedLayer* nearest_with_others(const PlannedLayer& layer) const;
  void require_partner(const PlannedLayer& layer) const;
  void require_region_of_sequences() const;
  void require_sequence_option(const SplitRule& rule) const;

  nn::Module& model_;
  std::vector<SplitRule> plan_;
  std::vector<bool> used_;  // of the rules
  int64_t ranks_;
  bool sequence_parallel_;
  std::vector<std::unique_ptr<PlannedLayer>> layers_;
  std::vector<PlannedParameter> parameters_;
  std::unordered_map<const at::TensorImpl*, size_t> places_;  // in parameters_
};

}  // namespace accel::parallel
