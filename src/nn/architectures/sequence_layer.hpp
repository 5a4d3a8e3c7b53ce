// SPDX-License-Identifier: Apache-2.0
// Sequence layer: a layer of an encoder, a decoder or an encoder-decoder, with normalization before each residual
// branch, or behind each residual sum: attention within the sequence, in decoders with an encoder attention to its
// states, and a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "nn/module.hpp"

namespace accel::nn {

// Paths below a layer; the projections below an attention. A decoder without `cross_attention` has no encoder.
struct SequenceLayerNames {
  std::string kind;
  const char* network_kind;  // of the module at `network`, where the network has one
  const char *query, *key, *value, *output;
  bool has_key_first;  // the order of the state dict: key, value, query
  std::string self_attention, self_norm, cross_attention, cross_norm, network, gate, up, down, network_norm;
};

struct SequenceConfig {
  std::string prefix;  // of the modules' kinds
  int64_t model_size, num_heads, head_size, inner_size;
  bool is_rms, is_gated;
  bool norms_after;  // normalization is behind the sums, as in the first transformers, and not before the branches
  bool has_bias, has_query_bias, has_key_bias;  // of outputs and the network; of queries and values; of keys
  double norm_eps, dropout, attention_dropout, activation_dropout;
  std::optional<double> scale;  // of scores; default: 1 / sqrt(head_size)
  std::string activation;
  double deviation;       // of new weights
  bool scales_deviation;  // it is divided by the root of the input features
  int64_t buckets;        // of relative positions; 0: none
  at::ScalarType dtype;
};

ModulePtr sequence_norm(const SequenceConfig& config);
ModulePtr sequence_linear(int64_t in_features, int64_t out_features, bool bias, const SequenceConfig& config);

// Inputs: hidden states [batch, length, model_size]; a mask that scaled_dot_product_attention takes, or None; the
// buckets [length, total] of relative positions, or None; the encoder's states and their mask, or None; the cache, or
// None: [key, value, key of the encoder's states, value of them], empty at the beginning. Gives [hidden states, mask,
// cache]: where the layer has a table of relative positions, the mask contains their scores, for the layers behind it.
ModulePtr sequence_layer(const SequenceConfig& config, const SequenceLayerNames& names, bool is_decoder,
                         bool has_positions);

}  // namespace accel::nn
