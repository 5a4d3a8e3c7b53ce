// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/matched_plan.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/module_walks.hpp"
#include "nn/weight_store.hpp"

namespace accel::parallel {
namespace {

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() || name.empty() ? path + name : path + "." + name;
}

std::string product_path(const PlannedLayer& layer) {
  return layer.projection == nullptr ? layer.path : join_path(layer.path, layer.projection->product_name());
}

bool is_inside(const PlannedLayer& layer, const PlannedLayer& around) {
  for (const PlannedLayer* each = &layer; each != nullptr; each = each->parent)
    if (each == &around) return true;
  return false;
}

// The attention whose heads a projection computes, or reads.
const nn::AttentionHeads* heads_around(const PlannedLayer& layer) {
  if (const auto* const own = dynamic_cast<const nn::AttentionHeads*>(layer.module)) return own;
  return layer.parent == nullptr ? nullptr : dynamic_cast<const nn::AttentionHeads*>(layer.parent->module);
}

// A rank has the key heads that its query heads use: several ranks have the same ones where there are fewer than ranks.
PackedCut cut_heads(const nn::AttentionHeads& attention, int64_t features, int64_t ranks, const SplitRule& rule,
                    const std::string& path) {
  require(attention.has_projection(features), Status::kInvalidArgument, "rule '", rule.text, "' cuts ", features,
          " features of '", path,
          "', which are those of no query, key or value; expected packed_colwise(3), for example");
  const int64_t heads = attention.heads(), key_heads = attention.key_heads();
  require(heads >= ranks, Status::kInvalidArgument, "'", path, "' has ", heads, " heads to split over ", ranks,
          " ranks; expected at least as many, or a smaller tensor_parallel_size");
  if (key_heads >= ranks) return {features, attention.inseparable(features)};
  require(heads % ranks == 0 && ranks % key_heads == 0, Status::kInvalidArgument, "'", path,
          "' is of an attention with ", heads, " heads and ", key_heads, " key heads to split over ", ranks,
          " ranks; expected a tensor_parallel_size that divides the heads and is a multiple of the key heads, or that "
          "is at most ",
          key_heads);
  const bool is_of_keys = features == key_heads * attention.head_size();
  return {features, attention.head_size(), is_of_keys ? ranks / key_heads : 1};
}

// The cuts of packed tensors of heads, as the rule says how many features a head has. Query heads that share a key head
// stay together.
std::vector<PackedCut> cut_heads(const std::vector<int64_t>& packed, int64_t ranks, const SplitRule& rule,
                                 const std::string& path) {
  const int64_t size = rule.head_size;
  for (const int64_t features : packed)
    require(features % size == 0, Status::kInvalidArgument, "rule '", rule.text, "' has heads of ", size,
            " features, and '", path, "' has ", features, "; expected a multiple");
  const int64_t fewest = *std::min_element(packed.begin(), packed.end()) / size;
  std::vector<PackedCut> cuts;
  for (const int64_t features : packed) {
    const int64_t heads = features / size;
    const bool are_shared = heads < ranks;  // several ranks have the same ones
    const bool fits = fewest >= ranks ? heads % fewest == 0
                                      : (are_shared ? ranks % heads == 0 && rule.style->along == SplitAlong::kOutputs
                                                    : heads % ranks == 0);
    require(fits, Status::kInvalidArgument, "rule '", rule.text, "' splits ", heads, " heads of '", path, "' over ",
            ranks, " ranks; expected at least as many, or key heads whose number divides that of the ranks");
    cuts.push_back({features, fewest >= ranks ? features / fewest : size, are_shared ? ranks / heads : 1});
  }
  return cuts;
}

// Three packed tensors of an attention are its queries, keys and values.
std::vector<int64_t> packed_sizes_of(const nn::AttentionHeads* heads, const SplitRule& rule, int64_t size,
                                     const std::string& path) {
  if (heads != nullptr && rule.packed == std::vector<int64_t>{3}) {
    const std::vector<int64_t> sizes = heads->packed_sizes();
    if (sizes[0] + sizes[1] + sizes[2] == size) return sizes;
  }
  return packed_sizes(rule, size, path);
}

}  // namespace

bool PlannedLayer::gives_part() const {
  return projection != nullptr && along() == SplitAlong::kOutputs && !rule->style->gathers_output;
}

bool PlannedLayer::takes_part() const {
  return projection != nullptr && along() == SplitAlong::kInputs && !rule->style->splits_input;
}

bool PlannedLayer::gathers_output() const {
  return projection != nullptr && along() == SplitAlong::kOutputs && rule->style->gathers_output;
}

bool PlannedLayer::is_split_output() const {
  return rule != nullptr && rule->style->name == std::string_view("split_output");
}

MatchedPlan::MatchedPlan(nn::Module& model, std::vector<SplitRule> plan, int64_t ranks, bool sequence_parallel,
                         bool is_stage)
    : model_(model), plan_(std::move(plan)), used_(plan_.size()), ranks_(ranks), sequence_parallel_(sequence_parallel) {
  add_layers(model, "", nullptr);
  for (const auto& layer : layers_) match(*layer);
  for (size_t i = 0; i < plan_.size(); i++)
    require(used_[i], Status::kInvalidArgument, "rule '", plan_[i].text,
            "' of the plan matches no layer and no parameter, or only such as earlier rules match; expected a path of "
            "the model, such as '",
            example_path(), "'");
  for (const auto& layer : layers_) require_partner(*layer);
  if (sequence_parallel && !is_stage) require_region_of_sequences();
}

const PlannedLayer* MatchedPlan::head() const {
  const PlannedLayer* head = nullptr;
  for (const auto& layer : layers_)
    if (layer->gathers_output()) head = layer.get();
  return head;
}

void MatchedPlan::require_head() const {
  require(head() != nullptr, Status::kInvalidArgument,
          "loss_parallel is 1, and the plan has no head whose logits would be gathered; expected a layer with "
          "the style colwise_gather_output");
}

void MatchedPlan::add_layers(nn::Module& module, const std::string& path, PlannedLayer* parent) {
  if (std::any_of(layers_.begin(), layers_.end(), [&](const auto& known) { return known->module == &module; })) return;
  require(module.weight_store() == nullptr, Status::kInvalidArgument, "module '", path,
          "' of the model is dispatched or offloaded, and its layers are split over ranks; expected a model without a "
          "device map");
  layers_.push_back(std::make_unique<PlannedLayer>());
  PlannedLayer& layer = *layers_.back();
  layer.path = path;
  layer.module = &module;
  layer.parent = parent;
  layer.projection = dynamic_cast<nn::Projection*>(&module);
  layer.embedding = dynamic_cast<nn::Embedding*>(&module);
  for (const auto& [name, child] : module.children()) add_layers(*child, join_path(path, name), &layer);
}

const SplitRule* MatchedPlan::find_rule(const std::string& path) {
  for (size_t i = 0; i < plan_.size(); i++)
    if (plan_[i].matches(path)) {
      used_[i] = true;
      return &plan_[i];
    }
  return nullptr;
}

std::string MatchedPlan::example_path() const {
  for (const auto& layer : layers_)
    if (layer->projection != nullptr) return product_path(*layer);
  const auto parameters = nn::named_parameters(model_);
  return parameters.empty() ? "layer.weight" : parameters.front().first;
}

void MatchedPlan::match(PlannedLayer& layer) {
  const std::string path = product_path(layer);
  layer.rule = find_rule(path);
  if (layer.rule != nullptr) {
    const SplitAlong along = layer.along();
    const bool fits =
        along == SplitAlong::kNothing ||
        (along == SplitAlong::kExpertFeatures && !layer.module->direct_parameters().empty()) ||
        (layer.projection != nullptr && (along == SplitAlong::kOutputs || along == SplitAlong::kInputs)) ||
        (layer.embedding != nullptr && (along == SplitAlong::kRows || along == SplitAlong::kColumns));
    require(fits, Status::kInvalidArgument, "rule '", layer.rule->text, "' does not fit '", path, "', of kind '",
            layer.module->kind(),
            "'; expected a linear layer for the styles colwise and rowwise, an embedding for the "
            "styles embedding_*, a module with the parameters of experts for moe_tp_experts, or the path of a "
            "parameter");
    require(
        along == SplitAlong::kNothing || layer.projection == nullptr || layer.projection->updates().empty(),
        Status::kUnsupported, "'", path, "' has adapters, and the rule '", layer.rule->text,
        "' splits it over ranks; expected a model whose merged weights accel_save_model_folder() saved, or adapters "
        "of other layers");
    require(!layer.is_split_output() || (layer.embedding != nullptr && sequence_parallel_), Status::kInvalidArgument,
            "rule '", layer.rule->text, "' does not fit '", path, "'; expected an embedding, and sequence_parallel 1");
    require_sequence_option(*layer.rule);
    require(!layer.rule->style->sums_gradients || !layer.module->direct_parameters().empty(), Status::kInvalidArgument,
            "rule '", layer.rule->text, "' names '", path,
            "', which has no parameters of its own; expected the layers in it");
  }
  match_parameters(layer);
}

void MatchedPlan::match_parameters(const PlannedLayer& layer) {
  const auto& parameters = layer.module->direct_parameters();
  for (size_t i = 0; i < parameters.size(); i++) {
    const auto& [name, parameter] = parameters[i];
    const std::string parameter_path = join_path(layer.path, name);
    const SplitRule* const own = find_rule(parameter_path);
    const SplitRule* const rule = own != nullptr ? own : layer.rule;
    const bool is_of_layer = layer.projection != nullptr || layer.embedding != nullptr;
    require(own == nullptr || !is_of_layer, Status::kInvalidArgument, "rule '", own == nullptr ? "" : own->text,
            "' names a parameter of a layer that is split as a whole; expected '", product_path(layer), "'");
    const bool is_of_mixture = dynamic_cast<const nn::GroupedExperts*>(layer.module) != nullptr;
    require(own == nullptr || !is_of_mixture || layer.has_parts_of_experts(), Status::kInvalidArgument, "rule '",
            own == nullptr ? "" : own->text, "' names a parameter of experts; expected '", layer.path,
            " moe_tp_experts' in the plan");
    const tensor::PlacementPtr placement = layer.module->placement(i);
    PlannedParameter planned{parameter,
                             placement == nullptr ? parameter.sizes().vec() : placement->shape,
                             parameter_path,
                             rule == nullptr ? "none" : "'" + rule->text + "'",
                             {},
                             false,
                             false,
                             &layer,
                             false};
    if (rule != nullptr) {
      require_sequence_option(*rule);
      planned.cut = cut_of(layer, *rule, i, planned.shape, parameter_path);
      // The bias of a row layer is added to a rank's positions of the sum.
      const bool is_bias_of_part = sequence_parallel_ && layer.projection != nullptr && i == nn::Projection::kBias &&
                                   rule->style->along == SplitAlong::kInputs;
      planned.sums_gradients = rule->style->sums_gradients || is_bias_of_part;
      planned.has_classes =
          rule->style->gathers_output && planned.cut && planned.cut->dim == 0 && planned.shape.size() == 2;
      planned.is_factor = own != nullptr && planned.cut && planned.shape.size() == 2 && !layer.has_parts_of_experts();
    }
    require(own == nullptr || own->style->along == SplitAlong::kNothing || planned.cut, Status::kInvalidArgument,
            "rule '", own == nullptr ? "" : own->text, "' does not fit '", parameter_path, "' of shape ",
            c10::IntArrayRef(planned.shape), "; expected at least two dimensions, or the style colwise");
    add(std::move(planned));
  }
}

// How a rule cuts a parameter; nothing: the rank has all of it.
std::optional<DimensionCut> MatchedPlan::cut_of(const PlannedLayer& layer, const SplitRule& rule, size_t index,
                                                c10::IntArrayRef shape, const std::string& path) const {
  if (layer.has_parts_of_experts()) return cut_of_experts(layer, rule, index, shape, path);
  const SplitAlong along = rule.style->along;
  if (along == SplitAlong::kNothing) return std::nullopt;
  const bool is_bias = layer.projection != nullptr ? index == nn::Projection::kBias : shape.size() < 2;
  if (is_bias && along != SplitAlong::kOutputs && along != SplitAlong::kRows) return std::nullopt;
  const bool along_second = along == SplitAlong::kInputs || along == SplitAlong::kColumns;
  const bool is_transposed = layer.projection != nullptr && !is_bias && layer.projection->output_dim() == 1;
  const size_t dim = along_second != is_transposed ? 1 : 0;
  require(dim < shape.size(), Status::kInvalidArgument, "rule '", rule.text, "' cuts dimension ", dim, " of '", path,
          "', whose shape is ", shape);
  const int64_t size = shape[dim];
  const bool is_within = !rule.style->gathers_output && !rule.style->splits_input;
  const nn::AttentionHeads* const heads = is_within ? heads_around(layer) : nullptr;
  const std::vector<int64_t> sizes = packed_sizes_of(heads, rule, size, path);
  if (rule.head_size > 0) return DimensionCut{dim, cut_heads(sizes, ranks_, rule, path)};
  DimensionCut cut{dim, {}};
  for (const int64_t packed : sizes) {
    require(heads != nullptr || packed >= ranks_, Status::kInvalidArgument, "'", path, "' has ", packed,
            " features to split over ", ranks_, " ranks; expected at least as many, or a smaller tensor_parallel_size");
    cut.packed.push_back(heads == nullptr ? PackedCut{packed} : cut_heads(*heads, packed, ranks_, rule, path));
  }
  return cut;
}

// The first dimension are the experts; behind it are those of one expert's matrix.
std::optional<DimensionCut> MatchedPlan::cut_of_experts(const PlannedLayer& layer, const SplitRule& rule, size_t index,
                                                        c10::IntArrayRef shape, const std::string& path) const {
  DimensionCut cut;
  if (dynamic_cast<const nn::GroupedExperts*>(layer.module) != nullptr) {
    const bool is_down = index == nn::GroupedExperts::kDown;
    cut.dim = is_down ? 2 : 1;
    cut.packed.assign(is_down ? 1 : 2, PackedCut{shape[cut.dim] / (is_down ? 1 : 2)});
  } else {
    const SplitAlong along = rule.style->along;
    require(&rule != layer.rule, Status::kInvalidArgument, "rule '", rule.text, "' splits the experts of '", layer.path,
            "', and the plan has no rule for '", path,
            "', which each rank would use as a whole; expected one such as packed_colwise(2), rowwise or replicate");
    if (along == SplitAlong::kNothing) return std::nullopt;
    require(along == SplitAlong::kOutputs || along == SplitAlong::kInputs, Status::kInvalidArgument, "rule '",
            rule.text, "' does not fit '", path, "', a parameter of experts; expected colwise or rowwise");
    cut.dim = along == SplitAlong::kOutputs ? 1 : 2;
    require(cut.dim < shape.size(), Status::kInvalidArgument, "rule '", rule.text, "' cuts dimension ", cut.dim,
            " of '", path, "', whose shape is ", shape);
    for (const int64_t packed : packed_sizes(rule, shape[cut.dim], path)) cut.packed.push_back({packed});
  }
  for (const PackedCut& packed : cut.packed)
    require(packed.size >= ranks_, Status::kInvalidArgument, "the experts of '", path, "' have ", packed.size,
            " features to split over ", ranks_, " ranks; expected at least as many, or a smaller tensor_parallel_size");
  return cut;
}

// Tied parameters have one cut.
void MatchedPlan::add(PlannedParameter parameter) {
  const auto [place, is_new] = places_.emplace(parameter.parameter.unsafeGetTensorImpl(), parameters_.size());
  if (is_new) {
    parameters_.push_back(std::move(parameter));
    return;
  }
  const PlannedParameter& known = parameters_[place->second];
  require(known.cut == parameter.cut && known.sums_gradients == parameter.sums_gradients, Status::kInvalidArgument, "'",
          known.path, "' and '", parameter.path,
          "' are one parameter, and their rules cut it in different ways: ", known.rule, " and ", parameter.rule,
          "; expected rules that agree, such as embedding_rowwise and colwise_gather_output");
}

// The nearest module around a layer that has linear layers which are split otherwise; null: there is none.
const PlannedLayer* MatchedPlan::nearest_with_others(const PlannedLayer& layer) const {
  for (const PlannedLayer* around = &layer; around != nullptr; around = around->parent)
    if (std::any_of(layers_.begin(), layers_.end(), [&](const auto& other) {
          return other->projection != nullptr && other->along() != layer.along() && is_inside(*other, *around);
        }))
      return around;
  return nullptr;
}

// The output of a column layer is read by a row layer, which has no other input.
void MatchedPlan::require_partner(const PlannedLayer& layer) const {
  const bool is_column = layer.gives_part();
  if (!is_column && !layer.takes_part()) return;
  const PlannedLayer* const around = nearest_with_others(layer);
  const bool has_partner =
      around != nullptr && std::any_of(layers_.begin(), layers_.end(), [&](const auto& other) {
        return is_inside(*other, *around) && (is_column ? other->takes_part() : other->gives_part());
      });
  const char* const words = is_column ? "' splits the output of '" : "' takes a split input for '";
  const char* const advice = is_column ? "takes it; expected a rowwise layer there, or the style colwise_gather_output"
                                       : "gives it; expected a colwise layer there, or the style rowwise_split_input";
  require(has_partner, Status::kInvalidArgument, "rule '", layer.rule->text, words, product_path(layer),
          "', and no layer ", around == nullptr ? std::string() : "in '" + around->path + "' ", advice);
}

// Sequences are split from an embedding on, to a layer that gathers them.
void MatchedPlan::require_region_of_sequences() const {
  const auto begins = [](const auto& layer) {
    return layer->embedding != nullptr && layer->rule != nullptr &&
           (layer->along() != SplitAlong::kNothing || layer->is_split_output());
  };
  const auto ends = [](const auto& layer) { return layer->gathers_output(); };
  require(std::any_of(layers_.begin(), layers_.end(), begins) && std::any_of(layers_.begin(), layers_.end(), ends),
          Status::kInvalidArgument,
          "sequence_parallel is 1, and the plan has no embedding and head where the split sequence begins and ends; "
          "expected a style embedding_rowwise, and colwise_gather_output");
}

void MatchedPlan::require_sequence_option(const SplitRule& rule) const {
  require(rule.style->name != std::string_view("sequence_parallel") || sequence_parallel_, Status::kInvalidArgument,
          "rule '", rule.text,
          "' is for layers on split sequences, and sequence_parallel is 0; expected 1, or no such rule");
}

}  // namespace accel::parallel
