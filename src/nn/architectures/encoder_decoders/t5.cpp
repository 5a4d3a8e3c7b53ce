// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/encoder_decoders/t5.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/encoder_decoders/encoder_decoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"

namespace accel::nn {
namespace {

struct T5Config {
  SequenceConfig layer;
  int64_t vocab_size, num_layers, num_decoder_layers, max_distance;
  bool is_tied;  // the head is the table of tokens, and gets smaller states
};

T5Config read_t5_config(const Json& json) {
  refuse_quantization(json);
  T5Config config{};
  SequenceConfig& layer = config.layer;
  config.vocab_size = size_member(json, "vocab_size", 32128);
  config.num_layers = layers_member(json, "num_layers", 6);
  config.num_decoder_layers = layers_member(json, "num_decoder_layers", config.num_layers);
  config.max_distance = size_member(json, "relative_attention_max_distance", 128);
  config.is_tied = json_flag(json, "tie_word_embeddings", true);
  layer.prefix = "T5";
  layer.model_size = size_member(json, "d_model", 512);
  layer.num_heads = size_member(json, "num_heads", 8);
  layer.head_size = size_member(json, "d_kv", 64);
  layer.inner_size = size_member(json, "d_ff", 2048);
  layer.buckets = size_member(json, "relative_attention_num_buckets", 32);
  require(layer.buckets >= 4 && layer.buckets % 2 == 0, Status::kInvalidArgument, "relative_attention_num_buckets is ",
          layer.buckets, "; expected an even number from 4 on");
  require(config.max_distance > layer.buckets / 2, Status::kInvalidArgument, "relative_attention_max_distance is ",
          config.max_distance, "; expected more than half of the buckets, ", layer.buckets / 2);
  layer.is_rms = true;
  layer.norm_eps = json_number(json, "layer_norm_epsilon", 1e-6);
  layer.dropout = layer.attention_dropout = layer.activation_dropout = json_number(json, "dropout_rate", 0.1);
  check_probability(layer.dropout, "dropout_rate");
  layer.scale = 1.0;
  const std::string network = json_text(json, "feed_forward_proj", "relu");
  layer.is_gated = network.rfind("gated-", 0) == 0;
  layer.activation = layer.is_gated ? network.substr(6) : network;
  if (network == "gated-gelu") layer.activation = "gelu_new";
  require(Activation::knows(layer.activation), Status::kUnsupported, "feed_forward_proj '", network,
          "' is not known; expected 'relu' or 'gated-gelu', for example");
  layer.deviation = json_number(json, "initializer_factor", 1.0);
  require(layer.deviation >= 0, Status::kInvalidArgument, "initializer_factor is ", layer.deviation,
          "; expected 0 or more");
  layer.scales_deviation = true;
  layer.dtype = weight_dtype(json);
  require(layer.dtype != at::kHalf, Status::kUnsupported,
          "dtype is 'float16', in which the states of T5 are infinite; expected 'bfloat16' or 'float32'");
  return config;
}

SequenceLayerNames t5_names(bool is_decoder, bool is_gated) {
  const std::string network = is_decoder ? "layer.2." : "layer.1.", dense = network + "DenseReluDense.";
  return {"T5Block",
          is_gated ? "T5DenseGatedActDense" : "T5DenseActDense",
          "q",
          "k",
          "v",
          "o",
          false,
          "layer.0.SelfAttention",
          "layer.0.layer_norm",
          "layer.1.EncDecAttention",
          "layer.1.layer_norm",
          network + "DenseReluDense",
          dense + "wi_0",
          dense + (is_gated ? "wi_1" : "wi"),
          dense + "wo",
          network + "layer_norm"};
}

class T5Stack final : public SequenceStack {
 public:
  T5Stack(const T5Config& config, bool is_decoder, const at::Tensor& table)
      : SequenceStack("T5Stack", is_decoder),
        is_decoder_(is_decoder),
        buckets_(config.layer.buckets),
        max_distance_(config.max_distance) {
    add_child("embed_tokens", tokens_ = std::make_shared<Embedding>(table));
    add_layers("block", is_decoder ? config.num_decoder_layers : config.num_layers, config.layer,
               t5_names(is_decoder, config.layer.is_gated));
    add_last_norm("final_layer_norm", config.layer);
    drops_output_ = true;
  }

 protected:
  at::Tensor embed(const at::Tensor& input, int64_t) override {
    require(input.dim() == 2 && input.size(1) > 0, Status::kShapeMismatch, kind(), " was called with the shape ",
            input.sizes(), "; expected token ids [batch, length]");
    return tokens_->call(input);
  }

  // Near positions have a bucket each, and far ones share one with others that are about as far.
  at::Tensor buckets(int64_t length, int64_t total, c10::Device device) const override {
    const auto options = at::TensorOptions().dtype(at::kLong).device(device);
    at::Tensor distance = at::arange(total, options) - at::arange(total - length, total, options).unsqueeze(1);
    const int64_t count = is_decoder_ ? buckets_ : buckets_ / 2, exact = count / 2;
    const at::Tensor behind = distance.gt(0).to(at::kLong) * count;
    distance = is_decoder_ ? distance.neg().clamp_min(0) : distance.abs();
    const at::Tensor far = (distance.to(at::kFloat) / exact).log() /
                           std::log(static_cast<double>(max_distance_) / static_cast<double>(exact)) * (count - exact);
    const at::Tensor shared = (far.clamp_min(0).to(at::kLong) + exact).clamp_max(count - 1);
    const at::Tensor bucket = at::where(distance.lt(exact), distance, shared);
    return is_decoder_ ? bucket : bucket + behind;
  }

 private:
  bool is_decoder_;
  int64_t buckets_, max_distance_;
  ModulePtr tokens_;
};

// The encoder with the names of the whole model.
class T5EncoderModel final : public Module {
 public:
  T5EncoderModel(const T5Config& config, const at::Tensor& table) : Module("T5EncoderModel") {
    add_child("shared", std::make_shared<Embedding>(table));
    add_child("encoder", encoder_ = std::make_shared<T5Stack>(config, /*is_decoder=*/false, table));
  }
  std::vector<std::string> input_names() const override { return encoder_->input_names(); }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return encoder_->call(inputs); }

 private:
  ModulePtr encoder_;
};

}  // namespace

ModulePtr build_t5(const Json& json) {
  const T5Config config = read_t5_config(json);
  const SequenceConfig& layer = config.layer;
  const at::Tensor table = normal_weight(config.vocab_size, layer.model_size, layer.deviation, layer.dtype);
  if (names_model_class(json, "T5EncoderModel")) return std::make_shared<T5EncoderModel>(config, table);
  require_model_class(json, "T5ForConditionalGeneration");
  const double scale = config.is_tied ? 1 / std::sqrt(static_cast<double>(layer.model_size)) : 1;
  auto model = std::make_shared<EncoderDecoder>("T5ForConditionalGeneration", "input_ids", /*takes_mask=*/true, scale);
  const auto encoder = std::make_shared<T5Stack>(config, false, table);
  const auto decoder = std::make_shared<T5Stack>(config, true, table);
  const auto head = std::make_shared<Linear>(
      config.is_tied ? table : normal_weight(config.vocab_size, layer.model_size, layer.deviation, layer.dtype),
      at::Tensor());
  model->add_child("shared", std::make_shared<Embedding>(table));
  model->add_child("encoder", encoder);
  model->add_child("decoder", decoder);
  model->add_child("lm_head", head);
  model->set_parts(encoder, decoder, head);
  return model;
}

}  // namespace accel::nn
