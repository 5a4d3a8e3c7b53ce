// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/saved_activations.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "nn/layers/activation.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/dropout.hpp"

namespace accel::parallel {
namespace {

std::vector<int64_t> whole_shape(const nn::Module& module, size_t parameter) {
  const tensor::PlacementPtr placement = module.placement(parameter);
  return placement == nullptr ? module.parameter(parameter).sizes().vec() : placement->shape;
}

// The features that a linear layer returns or reads, of all ranks.
int64_t outputs_of(const PlannedLayer& layer) {
  return whole_shape(*layer.module, nn::Projection::kWeight)[static_cast<size_t>(layer.projection->output_dim())];
}
int64_t inputs_of(const PlannedLayer& layer) {
  return whole_shape(*layer.module, nn::Projection::kWeight)[static_cast<size_t>(1 - layer.projection->output_dim())];
}

// The features that a normalization reads; 0: the module is none.
int64_t normalized_features(const PlannedLayer& layer) {
  const bool is_product = layer.projection != nullptr || layer.embedding != nullptr;
  if (is_product || layer.module->direct_parameters().empty()) return 0;
  const std::vector<int64_t> shape = whole_shape(*layer.module, 0);
  return shape.size() == 1 ? shape[0] : 0;
}

// A normalization without a bias subtracts no mean: it is composed of a division and a product, which both keep their
// input.
int64_t tensors_of_normalization(const nn::Module& module) { return module.direct_parameters().size() == 1 ? 2 : 1; }

bool is_inside(const std::string& path, const std::string& outer) {
  return outer.empty() || path == outer || path.compare(0, outer.size() + 1, outer + ".") == 0;
}

// The layers that one module contains.
struct Siblings {
  std::string path;                            // of the module
  const nn::AttentionHeads* heads = nullptr;   // of an attention
  const nn::Activation* activation = nullptr;  // between split layers
  int64_t outputs = 0, inputs = 0;             // features of split tensors, in front of the function and behind it
  int64_t hidden = 0;                          // features of what the module returns
  std::set<int64_t> read;                      // features of the inputs that are counted
};

class LayerBytes {
 public:
  LayerBytes(const MatchedPlan& plan, const ActivationSizes& sizes) : plan_(plan), sizes_(sizes) {
    for (const auto& layer : plan_.layers()) relate(*layer);
    for (const auto& layer : plan_.layers()) count(*layer);
    for (const auto& [module, siblings] : siblings_) count_function(siblings);
  }

  int64_t total(const std::vector<std::string>& recomputed) const {
    std::map<std::string, int64_t> inside;  // bytes of each recomputed module
    int64_t bytes = 0, largest = 0;
    for (const auto& [path, kept] : bytes_) {
      const auto outer = std::find_if(recomputed.begin(), recomputed.end(),
                                      [&path = path](const std::string& each) { return is_inside(path, each); });
      (outer == recomputed.end() ? bytes : inside[*outer]) += kept;
    }
    for (const auto& [path, kept] : inside) {
      bytes += between(input_features(path)) * sizes_.residual_bytes;
      largest = std::max(largest, kept);
    }
    return bytes + largest;
  }

 private:
  int64_t share(int64_t whole) const { return (whole + sizes_.tensor_ranks - 1) / sizes_.tensor_ranks; }
  // Elements of a tensor outside of the split layers.
  int64_t between(int64_t features) const {
    return (sizes_.splits_sequences ? share(sizes_.tokens) : sizes_.tokens) * features;
  }
  // Elements of a split tensor.
  int64_t within(int64_t features) const { return sizes_.tokens * share(features); }

  // Features of what the first normalization inside of a module reads.
  int64_t input_features(const std::string& path) const {
    for (const auto& layer : plan_.layers())
      if (const int64_t features = normalized_features(*layer); features > 0 && is_inside(layer->path, path))
        return features;
    return 0;
  }

  // SelfAttention is a layer with split outputs, and around the one that takes them.
  Siblings& siblings_of(const PlannedLayer& layer) {
    const bool is_around = layer.parent == nullptr || dynamic_cast<nn::AttentionHeads*>(layer.module) != nullptr;
    const PlannedLayer& around = is_around ? layer : *layer.parent;
    Siblings& siblings = siblings_[around.module];
    siblings.path = around.path;
    siblings.heads = dynamic_cast<const nn::AttentionHeads*>(around.module);
    return siblings;
  }

  void relate(const PlannedLayer& layer) {
    Siblings& siblings = siblings_of(layer);
    if (const auto* const function = dynamic_cast<nn::Activation*>(layer.module)) siblings.activation = function;
    if (layer.embedding != nullptr) siblings.hidden = whole_shape(*layer.module, 0)[1];
    if (layer.gives_part()) siblings.outputs += attended_features(siblings, outputs_of(layer));
    if (!layer.takes_part()) return;
    siblings.inputs += inputs_of(layer);
    siblings.hidden = outputs_of(layer);
  }

  int64_t attended_features(const Siblings& siblings, int64_t outputs) const {
    const nn::AttentionHeads* const heads = siblings.heads;
    const bool is_repeated =
        heads != nullptr && sizes_.repeats_keys && outputs == heads->key_heads() * heads->head_size();
    return is_repeated ? heads->heads() * heads->head_size() : outputs;
  }

  void count(const PlannedLayer& layer) {
    Siblings& siblings = siblings_of(layer);
    int64_t bytes = 0;
    if (layer.embedding != nullptr) bytes += sizes_.tokens * static_cast<int64_t>(sizeof(int64_t));
    constexpr int64_t kStatistics = 2 * sizeof(float);  // of each position
    if (const int64_t features = normalized_features(layer); features > 0)
      bytes +=
          tensors_of_normalization(*layer.module) * between(features) * sizes_.residual_bytes + between(kStatistics);
    const auto* const dropout = dynamic_cast<const nn::Dropout*>(layer.module);
    if (dropout != nullptr && dropout->probability() > 0) bytes += between(siblings.hidden) * sizes_.residual_bytes;
    if (layer.projection != nullptr) bytes += product_bytes(layer, siblings);
    bytes_.emplace_back(layer.path, bytes);
  }

  int64_t product_bytes(const PlannedLayer& layer, Siblings& siblings) const {
    const int64_t inputs = inputs_of(layer);
    if (layer.takes_part()) return within(inputs) * sizes_.input_bytes;
    int64_t bytes = 0;
    if (siblings.read.insert(inputs).second || sizes_.has_own_copies)
      bytes += (sizes_.regathers_inputs ? between(inputs) : sizes_.tokens * inputs) * sizes_.input_bytes;
    if (layer.gathers_output())
      bytes +=
          (sizes_.splits_scores ? within(outputs_of(layer)) : sizes_.tokens * outputs_of(layer)) * sizes_.product_bytes;
    return bytes;
  }

  // Counts the tensors between layers with split outputs and those that take them.
  void count_function(const Siblings& siblings) {
    int64_t features = siblings.outputs;
    const bool is_gated = siblings.activation != nullptr && siblings.outputs == 2 * siblings.inputs;
    if (is_gated) features += siblings.inputs;
    if (siblings.activation != nullptr && siblings.activation->keeps_output()) features -= siblings.inputs;
    int64_t bytes = within(features) * sizes_.function_bytes;
    if (siblings.heads != nullptr) bytes += within(siblings.heads->heads()) * static_cast<int64_t>(sizeof(float));
    if (siblings.heads != nullptr && sizes_.has_own_copies) bytes += within(siblings.inputs) * sizes_.function_bytes;
    bytes_.emplace_back(siblings.path, bytes);
  }

  const MatchedPlan& plan_;
  const ActivationSizes& sizes_;
  std::map<const nn::Module*, Siblings> siblings_;
  std::vector<std::pair<std::string, int64_t>> bytes_;  // by the path of a layer
};

}  // namespace

int64_t saved_activation_bytes(const MatchedPlan& plan, const ActivationSizes& sizes,
                               const std::vector<std::string>& recomputed) {
  return LayerBytes(plan, sizes).total(recomputed);
}

}  // namespace accel::parallel
