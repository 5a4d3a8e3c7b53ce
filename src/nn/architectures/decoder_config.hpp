// SPDX-License-Identifier: Apache-2.0
// Decoder configuration: Llama and its relatives, which differ in numbers, and in which of a few parts they have.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/architectures/decoder_family.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/rotary_embedding.hpp"
#include "nn/layers/expert_files.hpp"

namespace accel::nn {

struct DecoderBiases {
  bool qkv, output, mlp, head;
};

struct DecoderDropouts {
  double embedding, attention, mlp;  // behind the embedding, and behind the two branches of a layer
};

struct DecoderExperts {
  int64_t number, per_token;  // number 0: each layer has one network for all tokens
  int64_t intermediate_size;
  int64_t shared_size;      // the features of a network for all tokens beside the experts; 0: there is none
  bool normalizes_weights;  // those of a token's experts have the sum 1
  bool gives_router_loss;
  double router_loss_factor;
  std::vector<bool> layers;  // which have experts
  ExpertFiles files;
};

struct DecoderConfig {
  std::string prefix;  // of the kinds of modules: "Llama" of "LlamaDecoderLayer"
  DecoderNames names;
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_key_heads, head_dim;
  int64_t padding_row;  // of the embeddings: has no gradient; -1: none
  std::string activation;
  double initializer_range, norm_eps;
  bool ties_embeddings, scales_embeddings;  // the latter by the root of hidden_size
  DecoderBiases biases;
  DecoderDropouts dropouts;
  QkvShape qkv;
  MlpShape mlp;
  NormKind norm;
  NormPlacement norm_placement;
  bool has_parallel_branches;  // the network reads what the attention reads
  HeadNorm head_norm;
  AttentionRule attention;       // but for the mask and the window
  double logit_cap;              // 0: none
  std::vector<int64_t> windows;  // of each layer, the latest positions that one sees; 0: all
  RotarySettings rotary;
  std::optional<RotarySettings> local_rotary;  // of layers with a window, if it is another one
  DecoderExperts experts;
  at::ScalarType dtype;
};

bool is_decoder_type(const std::string& model_type);
// Errors name the key.
DecoderConfig read_decoder_config(const Json& config);

}  // namespace accel::nn
