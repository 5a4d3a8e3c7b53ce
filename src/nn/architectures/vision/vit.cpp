// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/vision/vit.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/vision/image_embedding.hpp"
#include "nn/architectures/vision/tower.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr ImageEmbeddingNames kVitEmbedding = {"ViTEmbeddings", "cls_token", "patch_embeddings.projection",
                                               "position_embeddings"};

SequenceConfig read_vit_layer(const Json& json) {
  SequenceConfig config = read_tower_config(json, "ViT", 768, 3072, 12, "gelu");
  config.has_query_bias = config.has_key_bias = json_flag(json, "qkv_bias", true);
  config.norm_eps = json_number(json, "layer_norm_eps", 1e-12);
  config.dropout = json_number(json, "hidden_dropout_prob", 0.0);
  check_probability(config.dropout, "hidden_dropout_prob");
  config.attention_dropout = json_number(json, "attention_probs_dropout_prob", 0.0);
  check_probability(config.attention_dropout, "attention_probs_dropout_prob");
  return config;
}

SequenceLayerNames vit_names() {
  return {"ViTLayer",
          "",
          "attention.query",
          "attention.key",
          "attention.value",
          "output.dense",
          false,
          "attention",
          "layernorm_before",
          "",
          "",
          "",
          "",
          "intermediate.dense",
          "output.dense",
          "layernorm_after"};
}

class VitModel final : public Tower {
 public:
  VitModel(const Json& json, const SequenceConfig& config, bool pools) : Tower("ViTModel") {
    ImageEmbeddingConfig images{};
    images.read_sizes(json, 16);
    images.size = config.model_size;
    images.has_bias = true;
    images.deviation = images.class_deviation = config.deviation;
    images.dropout = config.dropout;
    add_child("embeddings", embeddings_ = image_embedding(images, kVitEmbedding));
    add_layers("encoder.layer", layers_member(json, "num_hidden_layers", 12), config, vit_names(), /*is_causal=*/false);
    add_child("layernorm", norm_ = sequence_norm(config));
    if (!pools) return;
    const std::string activation = json_text(json, "pooler_act", "tanh");
    require(Activation::knows(activation), Status::kUnsupported, "pooler_act '", activation, "' is not known");
    const int64_t size = size_member(json, "pooler_output_size", config.model_size);
    const auto pooler = std::make_shared<Module>("ViTPooler");
    pooler->add_child("dense", dense_ = sequence_linear(config.model_size, size, true, config));
    pooler->add_child("activation", activation_ = std::make_shared<Activation>(activation));
    add_child("pooler", pooler);
  }
  std::vector<std::string> input_names() const override { return {"pixel_values", kInterpolates}; }

 protected:
  Embedded embed(const Inputs& inputs) override { return {embeddings_->call(inputs).toTensor(), {}, {}}; }

  c10::IValue finish(const at::Tensor& hidden, const at::Tensor&) override {
    at::Tensor states = norm_->call(hidden);
    if (dense_ == nullptr) return states;
    at::Tensor pooled = activation_->call(dense_->call(states.select(1, 0)));
    return tree::new_list({std::move(states), std::move(pooled)});
  }

 private:
  ModulePtr embeddings_, norm_, dense_, activation_;
};

class VitForImageClassification final : public Module {
 public:
  VitForImageClassification(const Json& json, const SequenceConfig& config) : Module("ViTForImageClassification") {
    add_child("vit", vit_ = std::make_shared<VitModel>(json, config, /*pools=*/false));
    add_child("classifier", classifier_ = sequence_linear(config.model_size, number_of_classes(json), true, config));
  }
  std::vector<std::string> input_names() const override { return vit_->input_names(); }
  ModuleChain chain() override {
    return chain_with_head(vit_->chain(), "vit", "classifier",
                           [this](const c10::IValue& output) { return scores_of(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return scores_of(vit_->call(inputs)); }

 private:
  c10::IValue scores_of(const c10::IValue& states) { return classifier_->call(states.toTensor().select(1, 0)); }

  ModulePtr vit_, classifier_;
};

}  // namespace

ModulePtr build_vit(const Json& json) {
  refuse_quantization(json);
  const std::string name = model_class(json, {"ViTModel", "ViTForImageClassification"});
  const SequenceConfig config = read_vit_layer(json);
  ModulePtr model;
  if (name == "ViTModel")
    model = std::make_shared<VitModel>(json, config, json_flag(json, "add_pooling_layer", true));
  else
    model = std::make_shared<VitForImageClassification>(json, config);
  if (const at::ScalarType dtype = weight_dtype(json); dtype != at::kFloat) model->to(dtype, std::nullopt);
  return model;
}

}  // namespace accel::nn
