// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/split_model.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/module_walks.hpp"
#include "nn/operators.hpp"
#include "nn/split/split_classes.hpp"
#include "nn/split/split_linear.hpp"
#include "parallel/regions/region_input.hpp"
#include "parallel/regions/sequence_region.hpp"
#include "parallel/regions/vocabulary_loss.hpp"
#include "parallel/sync_module_states.hpp"
#include "parallel/tensor/first_rank_values.hpp"
#include "parallel/tensor/matched_plan.hpp"
#include "parallel/tensor/shared_parts.hpp"
#include "parallel/tensor/split_layers.hpp"
#include "parallel/tensor/split_parameters.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::parallel {
namespace {

class ModelSplit {
 public:
  ModelSplit(nn::Module& model, const std::vector<SplitRule>& plan, const RankGroup& group, const SplitOptions& options)
      : model_(model),
        group_(group),
        sequence_parallel_(options.sequence_parallel),
        region_(group, options),
        matched_(model, plan, group->size(), options.sequence_parallel, options.is_stage) {
    if (options.loss_parallel && !options.is_stage) matched_.require_head();
    if (options.loss_parallel) head_ = matched_.head();
  }

  void apply() {
    check_same_model(model_, *group_);
    nn::register_operators();
    nn::NamedTensors tensors;
    const std::vector<PlannedParameter>& parameters = matched_.parameters();
    for (const PlannedParameter& planned : parameters) tensors.emplace_back(planned.path, planned.parameter);
    for (const auto& buffer : nn::named_buffers(model_)) tensors.push_back(buffer);
    const FirstRankValues values(tensors, group_);
    nn::Placements placements;
    SharedParts shared_parts(group_);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < tensors.size(); i++) {
        const auto& [path, tensor] = tensors[i];
        const PlannedParameter* const planned = i < parameters.size() ? &parameters[i] : nullptr;
        if (planned != nullptr && planned->sums_gradients) {
          tensor::Placement summed = tensor::whole_placement(planned->shape);
          summed.summed_axes = kTensorAxis;
          placements.set(tensor, std::make_shared<const tensor::Placement>(std::move(summed)));
        }
        const bool was_empty = tensor.is_meta();
        const at::Tensor whole = values.take(i);
        if (planned == nullptr || !planned->cut) {
          if (was_empty && !whole.is_meta()) tensor::set_data(tensor, whole);
          continue;
        }
        const auto placement = std::make_shared<const tensor::Placement>(
            split_placement(planned->shape, *planned->cut, group_->rank(), group_->size(), kTensorAxis));
        tensor::set_data(tensor, part_of(whole, *placement, path));
        placements.set(tensor, placement);
        shared_parts.sum_gradient(tensor, *planned->cut, *placement);
        if (!planned->has_classes) continue;
        const auto classes = split_classes(group_, placement->shape.front(), sequence_parallel_);
        classes_.emplace(tensor.unsafeGetTensorImpl(), MarkedWeight{classes});
      }
    }
    // Before the parameters are used: sizes of layers are those of the whole.
    nn::set_placements(model_, placements);
    for (const auto& layer : matched_.layers()) split_forward(*layer);
    for (const PlannedParameter& planned : parameters) {  // weights of other libraries' models have no layer here
      if (planned.is_factor) mark_factor(planned);
      const auto marked = classes_.find(planned.parameter.unsafeGetTensorImpl());
      if (marked != classes_.end())
        nn::mark_split_weight(planned.parameter, marked->second.classes, marked->second.owner);
    }
  }

 private:
  // In memory of its own, or without.
  static at::Tensor part_of(const at::Tensor& whole, const tensor::Placement& placement, const std::string& path) {
    if (whole.is_meta()) {
      at::Tensor part = at::empty(placement.stored_sizes(), whole.options());
      nn::remember_filling_of(part, whole);
      return part;
    }
    const at::Tensor part = tensor::read_part(whole, placement, path);
    return part.is_alias_of(whole) ? part.clone(at::MemoryFormat::Contiguous) : part;
  }

  // Whether a layer works on a rank's part: of sequences until they are gathered, or of features between two layers.
  bool is_on_part(const PlannedLayer& layer) const {
    bool is_on_features = false, is_behind_head = false;
    for (const auto& other : matched_.layers()) {
      if (other->parent != layer.parent) continue;
      if (other.get() == &layer) break;
      if (other->projection == nullptr || other->along() == SplitAlong::kNothing) continue;
      is_on_features = other->gives_part();
      is_behind_head = other->gathers_output();
    }
    return is_on_features || (sequence_parallel_ && !is_behind_head);
  }

  void split_forward(const PlannedLayer& layer) {
    // Each dropout moves the common random stream alike on all ranks, whatever part it drops elements of.
    if (auto* const dropout = dynamic_cast<nn::Dropout*>(layer.module))
      dropout->set_split_rank(is_on_part(layer) ? group_->rank() : group_->size());
    if (layer.rule == nullptr) return;
    if (layer.is_split_output()) layer.embedding->set_split(std::make_shared<SequenceLookup>(group_));
    if (layer.along() == SplitAlong::kNothing) return;
    if (layer.has_parts_of_experts()) return split_experts(layer);
    if (layer.projection != nullptr && layer.along() == SplitAlong::kOutputs) {
      const int64_t gathered =
          layer.rule->style->gathers_output ? whole_size(layer, layer.projection->output_dim()) : 0;
      const auto marked = classes_.find(layer.projection->parameter(nn::Projection::kWeight).unsafeGetTensorImpl());
      nn::SplitClassesPtr classes = marked == classes_.end() ? nullptr : marked->second.classes;
      if (marked != classes_.end()) marked->second.owner = nn::ClassesOwner::kLayer;
      const bool splits_scores = &layer == head_;
      if (splits_scores && classes == nullptr) classes = split_classes(group_, gathered, sequence_parallel_);
      layer.projection->set_split(
          std::make_shared<ColumnProduct>(group_, input_of(layer), gathered, std::move(classes), splits_scores));
    } else if (layer.projection != nullptr) {
      layer.projection->set_split(std::make_shared<RowProduct>(region_, layer.rule->style->splits_input));
    } else if (layer.along() == SplitAlong::kRows) {
      const auto& box = layer.module->placement(0)->boxes.front().whole;
      layer.embedding->set_split(
          std::make_shared<RowLookup>(group_, box.offset[0], whole_size(layer, 0), sequence_parallel_));
    } else {
      layer.embedding->set_split(std::make_shared<ColumnLookup>(group_, whole_size(layer, 1), sequence_parallel_));
    }
    if (layer.rule->style->gathers_output || layer.rule->style->splits_input) return;  // all heads are on each rank
    for (nn::Module* const module : {layer.module, layer.parent == nullptr ? nullptr : layer.parent->module})
      if (auto* const heads = dynamic_cast<nn::AttentionHeads*>(module)) heads->set_split_rank(group_->rank());
  }

  // The forward of a program's own experts sums by itself.
  void split_experts(const PlannedLayer& layer) {
    auto* const mixture = layer.parent == nullptr ? nullptr : dynamic_cast<nn::MixtureOfExperts*>(layer.parent->module);
    if (mixture != nullptr) mixture->set_split(std::make_shared<ExpertFeatures>(group_, sequence_parallel_));
  }

  // The module that contains the parameter's owns what computes with it.
  void mark_factor(const PlannedParameter& planned) {
    const PlannedLayer* const parent = planned.owner->parent;
    std::shared_ptr<SplitSiblings>& siblings = siblings_[parent];
    if (siblings == nullptr) siblings = std::make_shared<SplitSiblings>(region_);
    const auto product = std::make_shared<const ParameterProduct>(siblings, planned.cut->dim);
    nn::mark_split_linear(planned.parameter, product);
    planned.owner->module->hooks().add_post_hook(
        [product](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
          return std::nullopt;
        });
  }

  static int64_t whole_size(const PlannedLayer& layer, int64_t dim) {
    return layer.module->placement(0)->shape[static_cast<size_t>(dim)];
  }

  // Column layers of one parent read the same input.
  std::shared_ptr<RegionInput> input_of(const PlannedLayer& column) {
    const auto is_sibling = [&](const auto& layer) {
      return layer->parent == column.parent && layer->projection != nullptr && layer->along() == SplitAlong::kOutputs;
    };
    const auto& layers = matched_.layers();
    const auto siblings = static_cast<size_t>(std::count_if(layers.begin(), layers.end(), is_sibling));
    if (column.parent == nullptr || siblings == 1) return std::make_shared<RegionInput>(region_, 1);
    std::shared_ptr<RegionInput>& shared = inputs_[column.parent];
    if (shared == nullptr) shared = RegionInput::within(*column.parent->module, region_, siblings);
    return shared;
  }

  nn::Module& model_;
  RankGroup group_;
  bool sequence_parallel_;
  SplitRegion region_;
  MatchedPlan matched_;
  const PlannedLayer* head_ = nullptr;  // whose class scores stay split
  struct MarkedWeight {
    nn::SplitClassesPtr classes;
    nn::ClassesOwner owner = nn::ClassesOwner::kMark;
  };
  std::unordered_map<const at::TensorImpl*, MarkedWeight> classes_;
  std::map<const PlannedLayer*, std::shared_ptr<RegionInput>> inputs_;
  std::map<const PlannedLayer*, std::shared_ptr<SplitSiblings>> siblings_;  // by the module that contains them
};

}  // namespace

void split_model(nn::Module& model, const std::vector<SplitRule>& plan, const RankGroup& group,
                 const SplitOptions& options) {
  ModelSplit(model, plan, group, options).apply();
}

}  // namespace accel::parallel
