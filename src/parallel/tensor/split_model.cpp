#include "parallel/tensor/split_model.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_classes.hpp"
#include "nn/weight_store.hpp"
#include "parallel/regions/region_input.hpp"
#include "parallel/regions/sequence_region.hpp"
#include "parallel/regions/vocabulary_loss.hpp"
#include "parallel/sync_module_states.hpp"
#include "parallel/tensor/split_layers.hpp"
#include "parallel/tensor/split_parameters.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::parallel {
namespace {

// A module of the model, with what the plan says of it.
struct Layer {
  std::string path;
  nn::Module* module = nullptr;
  Layer* parent = nullptr;  // null: the model
  nn::Projection* projection = nullptr;
  nn::Embedding* embedding = nullptr;
  const SplitRule* rule = nullptr;  // of the layer's product or table

  SplitAlong along() const { return rule == nullptr ? SplitAlong::kNothing : rule->style->along; }
};

class ModelSplit {
 public:
  ModelSplit(nn::Module& model, const std::vector<SplitRule>& plan, const RankGroup& group, SplitOptions options)
      : model_(model), group_(group), sequence_parallel_(options.sequence_parallel), plan_(plan), used_(plan.size()) {
    add_layers(model, "", nullptr);
    for (const auto& layer : layers_) match(*layer);
    for (size_t i = 0; i < plan.size(); i++)
      require(used_[i], Status::kInvalidArgument, "rule '", plan[i].text,
              "' of the plan matches no layer and no parameter, or only such as earlier rules match; expected a path "
              "of the "
              "model, such as '",
              example_path(), "'");
    for (const auto& layer : layers_) require_partner(*layer);
    if (sequence_parallel_) require_region_of_sequences();
    if (options.loss_parallel) find_head();
  }

  void apply() {
    sync_module_states(model_, *group_);
    nn::Placements placements;
    {
      const at::NoGradGuard no_grad;
      for (const auto& [tensor, cut] : cuts_) {
        if (!cut.dimension) continue;
        const tensor::Placement placement =
            split_placement(cut.parameter.sizes().vec(), *cut.dimension, group_->rank(), group_->size(), kTensorAxis);
        cut.parameter.set_data(tensor::read_part(cut.parameter.detach(), placement, cut.path).clone());
        placements.set(cut.parameter, std::make_shared<const tensor::Placement>(placement));
        if (cut.has_classes)
          nn::mark_split_weight(cut.parameter, split_classes(group_, placement.shape.front(), sequence_parallel_));
      }
    }
    // Before the parameters are used: sizes of layers are those of the whole.
    nn::set_placements(model_, placements);
    for (const auto& [tensor, cut] : cuts_)
      if (cut.sums_gradients) sum_gradient(cut.parameter, group_);
    for (const auto& layer : layers_) split_forward(*layer);
  }

 private:
  struct ParameterCut {
    at::Tensor parameter;
    std::string path;
    std::string rule;  // for messages
    std::optional<DimensionCut> dimension;
    bool sums_gradients = false;
    bool has_classes = false;  // one in each row, of a head or of the table that it is tied to
  };

  void add_layers(nn::Module& module, const std::string& path, Layer* parent) {
    if (std::any_of(layers_.begin(), layers_.end(), [&](const auto& known) { return known->module == &module; }))
      return;
    require(
        module.weight_store() == nullptr, Status::kInvalidArgument, "module '", path,
        "' of the model is dispatched or offloaded, and its layers are split over ranks; expected a model without a "
        "device map");
    layers_.push_back(std::make_unique<Layer>());
    Layer& layer = *layers_.back();
    layer.path = path;
    layer.module = &module;
    layer.parent = parent;
    layer.projection = dynamic_cast<nn::Projection*>(&module);
    layer.embedding = dynamic_cast<nn::Embedding*>(&module);
    for (const auto& [name, child] : module.children()) add_layers(*child, nn::join_path(path, name), &layer);
  }

  const SplitRule* find_rule(const std::string& path) {
    for (size_t i = 0; i < plan_.size(); i++)
      if (plan_[i].matches(path)) {
        used_[i] = true;
        return &plan_[i];
      }
    return nullptr;
  }

  static std::string product_path(const Layer& layer) {
    return layer.projection == nullptr ? layer.path : nn::join_path(layer.path, layer.projection->product_name());
  }

  std::string example_path() const {
    for (const auto& layer : layers_)
      if (layer->projection != nullptr) return product_path(*layer);
    const auto parameters = nn::named_parameters(model_);
    return parameters.empty() ? "layer.weight" : parameters.front().first;
  }

  void match(Layer& layer) {
    const std::string path = product_path(layer);
    layer.rule = find_rule(path);
    if (layer.rule != nullptr) {
      const SplitAlong along = layer.along();
      const bool fits =
          along == SplitAlong::kNothing ||
          (layer.projection != nullptr && (along == SplitAlong::kOutputs || along == SplitAlong::kInputs)) ||
          (layer.embedding != nullptr && (along == SplitAlong::kRows || along == SplitAlong::kColumns));
      require(fits, Status::kInvalidArgument, "rule '", layer.rule->text, "' does not fit '", path, "', of kind '",
              layer.module->kind(),
              "'; expected a linear layer for the styles colwise and rowwise, an embedding for the "
              "styles embedding_*, or the path of a parameter");
      require(!is_split_output(layer) || (layer.embedding != nullptr && sequence_parallel_), Status::kInvalidArgument,
              "rule '", layer.rule->text, "' does not fit '", path,
              "'; expected an embedding, and sequence_parallel 1");
      require_sequence_option(*layer.rule);
      require(!layer.rule->style->sums_gradients || !layer.module->direct_parameters().empty(),
              Status::kInvalidArgument, "rule '", layer.rule->text, "' names '", path,
              "', which has no parameters of its own; expected the layers in it");
    }
    const auto& parameters = layer.module->direct_parameters();
    for (size_t i = 0; i < parameters.size(); i++) {
      const auto& [name, parameter] = parameters[i];
      const std::string parameter_path = nn::join_path(layer.path, name);
      const SplitRule* const own = find_rule(parameter_path);
      const SplitRule* const rule = own != nullptr ? own : layer.rule;
      const bool is_of_layer = layer.projection != nullptr || layer.embedding != nullptr;
      require(own == nullptr || !is_of_layer, Status::kInvalidArgument, "rule '", own == nullptr ? "" : own->text,
              "' names a parameter of a layer that is split as a whole; expected '", path, "'");
      ParameterCut cut{parameter, parameter_path, rule == nullptr ? "none" : "'" + rule->text + "'", std::nullopt};
      if (rule != nullptr) {
        require_sequence_option(*rule);
        cut.dimension = cut_of(layer, *rule, i, parameter, parameter_path);
        // The bias of a row layer is added to a rank's positions of the sum.
        const bool is_bias_of_part = sequence_parallel_ && layer.projection != nullptr && i == nn::Projection::kBias &&
                                     rule->style->along == SplitAlong::kInputs;
        cut.sums_gradients = rule->style->sums_gradients || is_bias_of_part;
        cut.has_classes =
            rule->style->gathers_output && cut.dimension && cut.dimension->dim == 0 && parameter.dim() == 2;
      }
      require(own == nullptr || own->style->along != SplitAlong::kInputs || cut.dimension, Status::kInvalidArgument,
              "rule '", own == nullptr ? "" : own->text, "' does not fit '", parameter_path, "' of shape ",
              parameter.sizes(), "; expected at least two dimensions, or the style colwise");
      add_cut(cut);
    }
  }

  // How a rule cuts a parameter; nothing: the rank has all of it.
  std::optional<DimensionCut> cut_of(const Layer& layer, const SplitRule& rule, size_t index,
                                     const at::Tensor& parameter, const std::string& path) const {
    const SplitAlong along = rule.style->along;
    if (along == SplitAlong::kNothing) return std::nullopt;
    const bool is_bias = layer.projection != nullptr ? index == nn::Projection::kBias : parameter.dim() < 2;
    if (is_bias && along != SplitAlong::kOutputs && along != SplitAlong::kRows) return std::nullopt;
    const bool along_second = along == SplitAlong::kInputs || along == SplitAlong::kColumns;
    const bool is_transposed = layer.projection != nullptr && !is_bias && layer.projection->output_dim() == 1;
    const size_t dim = along_second != is_transposed ? 1 : 0;
    require(static_cast<int64_t>(dim) < parameter.dim(), Status::kInvalidArgument, "rule '", rule.text,
            "' cuts dimension ", dim, " of '", path, "', whose shape is ", parameter.sizes());
    const int64_t size = parameter.size(static_cast<int64_t>(dim));
    DimensionCut cut{dim, packed_sizes(rule, size, path), 1};
    const bool is_within = !rule.style->gathers_output && !rule.style->splits_input;
    const nn::AttentionHeads* const heads = is_within ? heads_around(layer) : nullptr;
    for (const int64_t packed : cut.packed) {
      require(heads == nullptr || heads->has_projection(packed), Status::kInvalidArgument, "rule '", rule.text,
              "' cuts ", packed, " features of '", path,
              "', which are those of no query, key or value; expected packed_colwise(3), for example");
      const int64_t inseparable = heads == nullptr ? 1 : heads->inseparable(packed);
      require(packed % inseparable == 0, Status::kInvalidArgument, "rule '", rule.text, "' cuts ", packed,
              " features of '", path, "', which are not heads of ", inseparable, "; expected whole heads");
      require(packed / inseparable >= group_->size(), Status::kInvalidArgument, "'", path, "' has ",
              packed / inseparable, heads == nullptr ? " features" : " heads", " to split over ", group_->size(),
              " ranks; expected at least as many, or a smaller tensor_parallel_size");
      cut.inseparable = inseparable;
    }
    return cut;
  }

  // The attention whose heads a projection computes, or reads.
  static const nn::AttentionHeads* heads_around(const Layer& layer) {
    if (const auto* const own = dynamic_cast<const nn::AttentionHeads*>(layer.module)) return own;
    return layer.parent == nullptr ? nullptr : dynamic_cast<const nn::AttentionHeads*>(layer.parent->module);
  }

  // Tied parameters have one cut.
  void add_cut(const ParameterCut& cut) {
    const auto [known, is_new] = cuts_.emplace(cut.parameter.unsafeGetTensorImpl(), cut);
    if (is_new) return;
    require(known->second.dimension == cut.dimension && known->second.sums_gradients == cut.sums_gradients,
            Status::kInvalidArgument, "'", known->second.path, "' and '", cut.path,
            "' are one parameter, and their rules cut it in different ways: ", known->second.rule, " and ", cut.rule,
            "; expected rules that agree, such as embedding_rowwise and colwise_gather_output");
  }

  // Whether the layer's output is split, or its input.
  static bool gives_part(const Layer& layer) {
    return layer.projection != nullptr && layer.along() == SplitAlong::kOutputs && !layer.rule->style->gathers_output;
  }
  static bool takes_part(const Layer& layer) {
    return layer.projection != nullptr && layer.along() == SplitAlong::kInputs && !layer.rule->style->splits_input;
  }

  // The nearest module around a layer that has linear layers which are split otherwise; null: there is none.
  const Layer* nearest_with_others(const Layer& layer) const {
    for (const Layer* around = &layer; around != nullptr; around = around->parent)
      if (std::any_of(layers_.begin(), layers_.end(), [&](const auto& other) {
            return other->projection != nullptr && other->along() != layer.along() && is_inside(*other, *around);
          }))
        return around;
    return nullptr;
  }

  // The output of a column layer is read by a row layer, which has no other input.
  void require_partner(const Layer& layer) const {
    const bool is_column = gives_part(layer);
    if (!is_column && !takes_part(layer)) return;
    const Layer* const around = nearest_with_others(layer);
    const bool has_partner =
        around != nullptr && std::any_of(layers_.begin(), layers_.end(), [&](const auto& other) {
          return is_inside(*other, *around) && (is_column ? takes_part(*other) : gives_part(*other));
        });
    const char* const words = is_column ? "' splits the output of '" : "' takes a split input for '";
    const char* const advice = is_column
                                   ? "takes it; expected a rowwise layer there, or the style colwise_gather_output"
                                   : "gives it; expected a colwise layer there, or the style rowwise_split_input";
    require(has_partner, Status::kInvalidArgument, "rule '", layer.rule->text, words, product_path(layer),
            "', and no layer ", around == nullptr ? std::string() : "in '" + around->path + "' ", advice);
  }

  // Sequences are split from an embedding on, to a layer that gathers them.
  void require_region_of_sequences() const {
    const auto begins = [](const auto& layer) {
      return layer->embedding != nullptr && layer->rule != nullptr &&
             (layer->along() != SplitAlong::kNothing || is_split_output(*layer));
    };
    const auto ends = [](const auto& layer) {
      return layer->projection != nullptr && layer->along() == SplitAlong::kOutputs &&
             layer->rule->style->gathers_output;
    };
    require(std::any_of(layers_.begin(), layers_.end(), begins) && std::any_of(layers_.begin(), layers_.end(), ends),
            Status::kInvalidArgument,
            "sequence_parallel is 1, and the plan has no embedding and head where the split sequence begins and ends; "
            "expected a style embedding_rowwise, and colwise_gather_output");
  }

  // The last layer whose output is gathered.
  void find_head() {
    for (const auto& layer : layers_)
      if (layer->projection != nullptr && layer->along() == SplitAlong::kOutputs && layer->rule->style->gathers_output)
        head_ = layer.get();
    require(head_ != nullptr, Status::kInvalidArgument,
            "loss_parallel is 1, and the plan has no head whose class scores would be gathered; expected a layer with "
            "the style colwise_gather_output");
    require(group_->device().is_cpu(), Status::kUnsupported, "loss_parallel is 1, and the ranks are on ",
            group_->device(), "; expected ranks on the CPU, or 0");
  }

  void require_sequence_option(const SplitRule& rule) const {
    require(rule.style->name != std::string_view("sequence_parallel") || sequence_parallel_, Status::kInvalidArgument,
            "rule '", rule.text,
            "' is for layers on split sequences, and sequence_parallel is 0; expected 1, or no such rule");
  }

  // Whether a layer works on a rank's part: of sequences until they are gathered, or of features between two layers.
  bool is_on_part(const Layer& layer) const {
    bool is_on_features = false, is_behind_head = false;
    for (const auto& other : layers_) {
      if (other->parent != layer.parent) continue;
      if (other.get() == &layer) break;
      if (other->projection == nullptr || other->along() == SplitAlong::kNothing) continue;
      is_on_features = gives_part(*other);
      is_behind_head = other->along() == SplitAlong::kOutputs && other->rule->style->gathers_output;
    }
    return is_on_features || (sequence_parallel_ && !is_behind_head);
  }

  static bool is_inside(const Layer& layer, const Layer& around) {
    for (const Layer* each = &layer; each != nullptr; each = each->parent)
      if (each == &around) return true;
    return false;
  }

  void split_forward(const Layer& layer) {
    // Each dropout moves the common random stream alike on all ranks, whatever part it drops elements of.
    if (auto* const dropout = dynamic_cast<nn::Dropout*>(layer.module))
      dropout->set_split_rank(is_on_part(layer) ? group_->rank() : group_->size());
    if (layer.rule == nullptr) return;
    if (is_split_output(layer)) layer.embedding->set_split(std::make_shared<SequenceLookup>(group_));
    if (layer.along() == SplitAlong::kNothing) return;
    if (layer.projection != nullptr && layer.along() == SplitAlong::kOutputs) {
      const int64_t gathered =
          layer.rule->style->gathers_output ? whole_size(layer, layer.projection->output_dim()) : 0;
      const nn::SplitClassesPtr classes =
          &layer == head_ ? split_classes(group_, gathered, sequence_parallel_) : nullptr;
      layer.projection->set_split(std::make_shared<ColumnProduct>(group_, input_of(layer), gathered, classes));
    } else if (layer.projection != nullptr) {
      layer.projection->set_split(
          std::make_shared<RowProduct>(group_, layer.rule->style->splits_input, sequence_parallel_));
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

  static bool is_split_output(const Layer& layer) {
    return layer.rule->style->name == std::string_view("split_output");
  }

  static int64_t whole_size(const Layer& layer, int64_t dim) {
    return layer.module->placement(0)->shape[static_cast<size_t>(dim)];
  }

  // Column layers of one parent read the same input.
  std::shared_ptr<RegionInput> input_of(const Layer& column) {
    const auto is_sibling = [&](const auto& layer) {
      return layer->parent == column.parent && layer->projection != nullptr && layer->along() == SplitAlong::kOutputs;
    };
    if (column.parent == nullptr || std::count_if(layers_.begin(), layers_.end(), is_sibling) == 1)
      return std::make_shared<RegionInput>(group_, sequence_parallel_);
    std::shared_ptr<RegionInput>& shared = inputs_[column.parent];
    if (shared == nullptr) shared = RegionInput::within(*column.parent->module, group_, sequence_parallel_);
    return shared;
  }

  nn::Module& model_;
  RankGroup group_;
  bool sequence_parallel_;
  const std::vector<SplitRule>& plan_;
  std::vector<bool> used_;  // of the rules
  std::vector<std::unique_ptr<Layer>> layers_;
  const Layer* head_ = nullptr;  // whose class scores stay split
  std::unordered_map<const at::TensorImpl*, ParameterCut> cuts_;
  std::map<const Layer*, std::shared_ptr<RegionInput>> inputs_;
};

}  // namespace

void split_model(nn::Module& model, const std::vector<SplitRule>& plan, const RankGroup& group, SplitOptions options) {
  ModelSplit(model, plan, group, options).apply();
}

}  // namespace accel::parallel
