// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/encoder_decoders/fairseq_side.hpp"

#include <string>

#include "base/error.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"

namespace accel::nn {

SequenceConfig read_fairseq_side(const Json& json, const FairseqDefaults& defaults, bool is_decoder) {
  const std::string side = is_decoder ? "decoder" : "encoder";
  SequenceConfig config{};
  config.prefix = defaults.prefix;
  config.model_size = size_member(json, "d_model", defaults.model_size);
  config.num_heads = size_member(json, (side + "_attention_heads").c_str(), defaults.num_heads);
  require(config.model_size % config.num_heads == 0, Status::kInvalidArgument, "d_model ", config.model_size,
          " is not divisible by ", side, "_attention_heads ", config.num_heads, "; every head needs the same size");
  config.head_size = config.model_size / config.num_heads;
  config.inner_size = size_member(json, (side + "_ffn_dim").c_str(), defaults.inner_size);
  config.has_bias = config.has_query_bias = true;
  config.norm_eps = 1e-5;
  config.activation = json_text(json, "activation_function", "gelu");
  require(Activation::knows(config.activation), Status::kUnsupported, "activation_function '", config.activation,
          "' is not known");
  const auto probability = [&](const char* key, double otherwise) {
    const double value = json_number(json, key, otherwise);
    check_probability(value, key);
    return value;
  };
  config.dropout = probability("dropout", defaults.dropout);
  config.attention_dropout = probability("attention_dropout", 0.0);
  config.activation_dropout = probability("activation_dropout", 0.0);
  config.deviation = json_number(json, "init_std", 0.02);
  require(config.deviation >= 0, Status::kInvalidArgument, "init_std is ", config.deviation, "; expected 0 or more");
  config.dtype = weight_dtype(json);
  require(json_number(json, (side + "_layerdrop").c_str(), 0) == 0, Status::kUnsupported, side,
          "_layerdrop is not 0; only 0 is supported");
  return config;
}

SequenceLayerNames fairseq_layer_names(const std::string& prefix, bool is_decoder) {
  return {prefix + (is_decoder ? "DecoderLayer" : "EncoderLayer"),
          "",
          "q_proj",
          "k_proj",
          "v_proj",
          "out_proj",
          true,
          "self_attn",
          "self_attn_layer_norm",
          "encoder_attn",
          "encoder_attn_layer_norm",
          "",
          "",
          "fc1",
          "fc2",
          "final_layer_norm"};
}

}  // namespace accel::nn
