// Decoder configuration: Llama and its relatives, which differ in numbers, and in which of a few parts they have.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/rotary_embedding.hpp"

namespace accel::nn {

// Where the two branches of a layer are normalized.
enum class NormPlacement : uint8_t { kBefore, kBehind, kBeforeAndBehind };
// Whether queries and keys are: each head, or the features of all heads together.
enum class HeadNorm : uint8_t { kNone, kEachHead, kAllHeads };

struct DecoderConfig {
  std::string prefix;  // of the kinds of modules: "Llama" of "LlamaDecoderLayer"
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_key_heads, head_dim;
  int64_t padding_row;  // of the embeddings: has no gradient; -1: none
  std::string activation;
  double initializer_range, norm_eps;
  bool qkv_bias, output_bias, mlp_bias, ties_embeddings;
  bool fuses_products;  // query, key and value are one product, and so are gate and up
  NormPlacement norm_placement;
  HeadNorm head_norm;
  bool norm_adds_one;                          // weights of norms are differences from 1
  bool scales_embeddings;                      // by the root of hidden_size
  AttentionRule attention;                     // but for the mask and the window
  double logit_cap;                            // 0: none
  std::vector<int64_t> windows;                // of each layer, the latest positions that one sees; 0: all
  RotarySettings rotary, local_rotary;         // the latter of layers with a window
  bool has_local_rotary;                       // otherwise all layers have the former
  int64_t num_experts, num_experts_per_token;  // 0: each layer has one network for all tokens
  at::ScalarType dtype;
};

// "llama, mistral, ...": the model types of decoders of this kind.
std::string decoder_types();
bool is_decoder_type(const std::string& model_type);
// Errors name the key.
DecoderConfig read_decoder_config(const Json& config);

}  // namespace accel::nn
