// SPDX-License-Identifier: Apache-2.0
// Decoder families: what model types of decoders differ in, and the defaults of their configurations.
#pragma once

#include <cstdint>
#include <string>

#include "nn/architectures/rotary_embedding.hpp"

namespace accel::nn {

enum class NormKind : uint8_t { kRms, kRmsAddsOne, kLayer };  // kRmsAddsOne: weights are differences from 1
// Where the two branches of a layer are normalized. kOnce: one norm is read by both.
enum class NormPlacement : uint8_t { kBefore, kBehind, kBeforeAndBehind, kOnce };
// Whether queries and keys are: each head, or the features of all heads together.
enum class HeadNorm : uint8_t { kNone, kEachHead, kAllHeads };
// Three products, or one, whose features are all queries, keys and values, or those of one head after another.
enum class QkvShape : uint8_t { kSeparate, kPacked, kByHead };
// down(act(gate(x)) * up(x)), the same with gate and up in one product, or down(act(up(x))).
enum class MlpShape : uint8_t { kGated, kPackedGated, kPlain };
// Which layers have a window, where `layer_types` does not say so.
enum class Windows : uint8_t { kNone, kAll, kAllIfUsed, kLateLayers, kEarlyEvenLayers, kEachSecond, kFiveOfSix };

// The names of modules.
struct DecoderNames {
  const char *base = "model", *embedding = "embed_tokens", *final_norm = "norm";
  const char* layer_kind = "DecoderLayer";  // behind the prefix
  const char *attention = "self_attn", *output = "o_proj", *query_norm = "q_norm", *key_norm = "k_norm";
  const char* hub_head = "lm_head";  // the head in files
  const char *up = "up_proj", *down = "down_proj", *activation = "act_fn";
};

// The key of a flag and its default; without a key it cannot be changed.
struct DecoderFlag {
  const char* key;
  bool otherwise;
};

// Keys of experts, and their defaults. Without a key for the number there are none.
struct DecoderExpertKeys {
  const char* number = nullptr;
  int64_t number_default = 0, per_token = 2;  // number_default 0: layers have experts if the number is given
  const char* intermediate_size = "intermediate_size";
  int64_t intermediate_default = 0;  // 0: intermediate_size
  int64_t shared_default = 0;        // the features of the shared expert; 0: there is none
  DecoderFlag normalizes = {nullptr, true};
  // Names in files, if they are not those of the model: of the mixture, and the matrices of an expert.
  const char *file_path = nullptr, *file_gate = nullptr, *file_up = nullptr, *file_down = nullptr;
};

struct DecoderSizes {
  int64_t vocab = 32000, hidden = 4096, intermediate = 11008, layers = 32, heads = 32;
  int64_t key_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;   // 0: hidden / heads
};

struct DecoderBiasFlags {
  DecoderFlag qkv = {"attention_bias", false}, output = {"attention_bias", false}, mlp = {"mlp_bias", false};
  bool head = false;
};

// Keys of dropouts behind the embedding, and behind the two branches of a layer; null: there is none.
struct DecoderDropoutKeys {
  const char *embedding = nullptr, *attention = nullptr, *mlp = nullptr;
};

struct DecoderFamily {
  const char *model_type = "llama", *prefix = "Llama";
  DecoderSizes sizes = {};
  int64_t pad_token = -1;       // -1: none
  bool has_padding_row = true;  // the row of pad_token gets no gradient
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  const char* activation = "silu";
  bool ties_embeddings = false;
  bool is_gemma = false;  // embeddings are scaled, attention by query_pre_attn_scalar
  DecoderBiasFlags biases = {};
  DecoderDropoutKeys dropouts = {};
  QkvShape qkv = QkvShape::kSeparate;
  MlpShape mlp = MlpShape::kGated;
  NormKind norm = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kBefore;
  DecoderFlag parallel_branches = {nullptr, false};
  bool shares_norm_if_parallel = false;  // between the branches
  HeadNorm head_norm = HeadNorm::kNone;
  DecoderFlag head_norm_flag = {nullptr, true};
  Windows windows = Windows::kNone;
  bool has_default_window = false;
  double attention_cap = 0, logit_cap = 0;
  RotaryDefaults rotary = {};
  DecoderNames names = {};
  DecoderExpertKeys experts = {};
};

// "llama, mistral, ...": the model types of decoders.
std::string decoder_types();
// Null for others.
const DecoderFamily* find_decoder_family(const std::string& model_type);

}  // namespace accel::nn
