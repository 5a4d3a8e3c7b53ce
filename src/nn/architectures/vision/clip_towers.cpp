// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/vision/clip_towers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/vision/image_embedding.hpp"
#include "nn/architectures/vision/tower.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// Files misspell the normalization in front of the layers of images.
constexpr const char* kClipPreNorm = "pre_layrnorm";
constexpr ImageEmbeddingNames kClipEmbedding = {"CLIPVisionEmbeddings", "class_embedding", "patch_embedding",
                                                "position_embedding"};

double clip_factor(const Json& json) {
  const double factor = json_number(json, "initializer_factor", 1.0);
  require(factor >= 0, Status::kInvalidArgument, "initializer_factor is ", factor, "; expected 0 or more");
  return factor;
}

SequenceConfig read_clip_layer(const Json& json, bool is_text) {
  SequenceConfig config = is_text ? read_tower_config(json, "CLIP", 512, 2048, 8, "quick_gelu")
                                  : read_tower_config(json, "CLIP", 768, 3072, 12, "quick_gelu");
  config.norm_eps = json_number(json, "layer_norm_eps", 1e-5);
  config.attention_dropout = json_number(json, "attention_dropout", 0.0);
  check_probability(config.attention_dropout, "attention_dropout");
  return config;
}

SequenceLayerNames clip_names() {
  return {"CLIPEncoderLayer", "CLIPMLP", "q_proj", "k_proj", "v_proj", "out_proj", true,      "self_attn",
          "layer_norm1",      "",        "",       "mlp",    "",       "mlp.fc1",  "mlp.fc2", "layer_norm2"};
}

// New weights are the smaller the wider and, in front of residual additions, the deeper the tower is.
void fill_clip_layers(const std::vector<ModulePtr>& layers, const SequenceConfig& config, double factor) {
  const double wide = factor / std::sqrt(static_cast<double>(config.model_size)),
               deep = wide / std::sqrt(2.0 * static_cast<double>(layers.size()));
  for (const ModulePtr& layer : layers) {
    const auto fill = [&layer](const char* path, double deviation) {
      fill_normal(find_tensor(*layer, text(path, ".weight")), 0, deviation);
    };
    for (const char* const path : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.fc2"})
      fill(path, deep);
    fill("self_attn.out_proj", wide);
    fill("mlp.fc1", wide / std::sqrt(2.0));
  }
}

class ClipTower : public Tower, public RenamedChildren {
 public:
  std::vector<std::pair<std::string, std::string>> hub_children() const override {
    std::vector<std::pair<std::string, std::string>> names;
    if (is_whole_)
      for (const auto& [name, child] : children()) names.emplace_back(name, path_ + ("." + name));
    return names;
  }

 protected:
  ClipTower(const Json& json, bool is_text, bool is_whole)
      : Tower(is_text ? "CLIPTextModel" : "CLIPVisionModel"),
        config_(read_clip_layer(json, is_text)),
        factor_(clip_factor(json)),
        path_(is_text ? "text_model" : "vision_model"),
        is_whole_(is_whole) {}

  void add_clip_layers(const Json& json, bool is_causal) {
    add_layers("encoder.layers", layers_member(json, "num_hidden_layers", 12), config_, clip_names(), is_causal);
    fill_clip_layers(layers(), config_, factor_);
  }

  SequenceConfig config_;
  double factor_;  // of the deviations of new weights

 private:
  const char* path_;
  bool is_whole_;
};

class ClipTextEmbeddings final : public Module {
 public:
  ClipTextEmbeddings(int64_t words, int64_t positions, int64_t size, double deviation) : Module("CLIPTextEmbeddings") {
    add_child("token_embedding",
              words_ = std::make_shared<Embedding>(normal_weight(words, size, deviation, at::kFloat)));
    add_child("position_embedding",
              positions_ = std::make_shared<Embedding>(normal_weight(positions, size, deviation, at::kFloat)));
  }
  std::vector<std::string> input_names() const override { return {"input_ids", "position_ids"}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& tokens = tensor_input(inputs, 0, kind());
    const at::Tensor positions =
        inputs[1].isTensor() ? inputs[1].toTensor() : sequence_positions(0, tokens.size(1), tokens.device());
    return words_->call(tokens) + positions_->call(positions);
  }

 private:
  ModulePtr words_, positions_;
};

class ClipTextTower final : public ClipTower {
 public:
  ClipTextTower(const Json& json, bool is_whole)
      : ClipTower(json, /*is_text=*/true, is_whole),
        limit_(size_member(json, "max_position_embeddings", 77)),
        end_(read_end(json)) {
    add_child("embeddings", embeddings_ = std::make_shared<ClipTextEmbeddings>(
                                size_member(json, "vocab_size", 49408), limit_, config_.model_size, 0.02 * factor_));
    add_clip_layers(json, /*is_causal=*/true);
    add_child("final_layer_norm", norm_ = sequence_norm(config_));
  }
  std::vector<std::string> input_names() const override { return {"input_ids", "attention_mask", "position_ids"}; }

 protected:
  Embedded embed(const Inputs& inputs) override {
    const at::Tensor& tokens = tensor_input(inputs, 0, kind());
    require(tokens.dim() == 2 && tokens.size(1) > 0, Status::kShapeMismatch, kind(), " was called with the shape ",
            tokens.sizes(), "; expected token ids [batch, length]");
    require(tokens.size(1) <= limit_, Status::kShapeMismatch, kind(), " was called with ", tokens.size(1),
            " positions; expected at most max_position_embeddings = ", limit_);
    const auto given = [&](size_t place) { return place < inputs.size() ? inputs[place] : c10::IValue(); };
    DecoderStream stream = DecoderStream::behind(nullptr, tokens);
    stream.take_padding(given(1), given(2), tokens.size(0));
    const at::Tensor ends = (end_ == kOldEnd ? tokens : tokens.eq(end_).to(at::kLong)).argmax(1);
    stream.hidden = embeddings_->call(Inputs{tokens, given(2)}).toTensor();
    return {stream.hidden, ends, stream.mask(/*window=*/0)};
  }

  c10::IValue finish(const at::Tensor& hidden, const at::Tensor& ends) override {
    at::Tensor states = norm_->call(hidden);
    const at::Tensor places = ends.view({-1, 1, 1}).expand({states.size(0), 1, states.size(2)});
    at::Tensor pooled = states.gather(1, places).squeeze(1);
    return tree::new_list({std::move(states), std::move(pooled)});
  }

 private:
  // Early configurations have this number, which is not the end of texts: that is the largest token.
  static constexpr int64_t kOldEnd = 2;

  static int64_t read_end(const Json& json) {
    const Json* const given = json_member(json, "eos_token_id");
    require(!says_none(json, "eos_token_id") && (given == nullptr || given->integer()), Status::kUnsupported,
            "eos_token_id is ", given == nullptr ? "null" : print_json(*given),
            "; expected one token, that ends a text");
    return json_integer(json, "eos_token_id", 49407);
  }

  int64_t limit_, end_;
  ModulePtr embeddings_, norm_;
};

class ClipVisionTower final : public ClipTower {
 public:
  ClipVisionTower(const Json& json, bool is_whole) : ClipTower(json, /*is_text=*/false, is_whole) {
    ImageEmbeddingConfig images{};
    images.read_sizes(json, 32);
    images.size = config_.model_size;
    images.has_table = true;
    images.class_deviation = factor_ / std::sqrt(static_cast<double>(config_.model_size));
    images.deviation = config_.deviation * factor_;
    add_child("embeddings", embeddings_ = image_embedding(images, kClipEmbedding));
    add_child(kClipPreNorm, pre_norm_ = sequence_norm(config_));
    add_clip_layers(json, /*is_causal=*/false);
    add_child("post_layernorm", norm_ = sequence_norm(config_));
  }
  std::vector<std::string> input_names() const override { return {"pixel_values", kInterpolates}; }

 protected:
  Embedded embed(const Inputs& inputs) override {
    return {pre_norm_->call(embeddings_->call(inputs).toTensor()), {}, {}};
  }
  c10::IValue finish(const at::Tensor& hidden, const at::Tensor&) override {
    return tree::new_list({hidden, norm_->call(hidden.select(1, 0))});
  }

 private:
  ModulePtr embeddings_, pre_norm_, norm_;
};

}  // namespace

ModulePtr clip_text_tower(const Json& config, bool is_whole) {
  return std::make_shared<ClipTextTower>(config, is_whole);
}
ModulePtr clip_vision_tower(const Json& config, bool is_whole) {
  return std::make_shared<ClipVisionTower>(config, is_whole);
}

ModulePtr clip_projection(const Json& json, bool is_text, int64_t size) {
  const SequenceConfig config = read_clip_layer(json, is_text);
  const double deviation = clip_factor(json) / std::sqrt(static_cast<double>(config.model_size));
  return std::make_shared<Linear>(normal_weight(size, config.model_size, deviation, at::kFloat), at::Tensor());
}

ModulePtr clip_classifier(const Json& json, int64_t classes) {
  const ModulePtr scores = clip_projection(json, /*is_text=*/false, classes);
  return std::make_shared<Linear>(find_tensor(*scores, "weight"), constant_parameter(0, {classes}, at::kFloat));
}

}  // namespace accel::nn
