// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/decoder_family.hpp"

#include "base/error.hpp"

namespace accel::nn {
namespace {

// Each family is a function, which says what differs from Llama.

constexpr DecoderFamily mistral(const char* model_type = "mistral", const char* prefix = "Mistral") {
  DecoderFamily family;
  family.model_type = model_type;
  family.prefix = prefix;
  family.sizes.intermediate = 14336;
  family.sizes.key_heads = 8;
  family.biases.qkv = family.biases.output = {nullptr, false};
  family.windows = Windows::kAll;
  family.has_default_window = true;
  return family;
}

constexpr DecoderFamily llama() {
  DecoderFamily family;
  family.experts.number = "num_local_experts";
  return family;
}

constexpr DecoderFamily mixtral() {
  DecoderFamily family = mistral("mixtral", "Mixtral");
  family.norm_eps = 1e-5;
  family.has_default_window = false;
  family.rotary.theta = 1e6;
  family.experts.number = "num_local_experts";
  family.experts.number_default = 8;
  family.experts.file_path = "block_sparse_moe";
  family.experts.file_gate = "w1";
  family.experts.file_up = "w3";
  family.experts.file_down = "w2";
  return family;
}

constexpr DecoderFamily qwen(const char* model_type, const char* prefix) {
  DecoderFamily family;
  family.model_type = model_type;
  family.prefix = prefix;
  family.sizes.vocab = 151936;
  family.sizes.intermediate = 22016;
  family.sizes.key_heads = 32;
  family.windows = Windows::kLateLayers;
  return family;
}

constexpr DecoderFamily qwen2() {
  DecoderFamily family = qwen("qwen2", "Qwen2");
  family.biases.qkv = {nullptr, true};
  family.biases.output = {nullptr, false};
  return family;
}

constexpr DecoderFamily qwen3() {
  DecoderFamily family = qwen("qwen3", "Qwen3");
  family.sizes.head_dim = 128;
  family.head_norm = HeadNorm::kEachHead;
  return family;
}

constexpr DecoderExpertKeys qwen_experts(int64_t number, int64_t per_token, int64_t intermediate_size) {
  DecoderExpertKeys experts;
  experts.number = "num_experts";
  experts.number_default = number;
  experts.per_token = per_token;
  experts.intermediate_size = "moe_intermediate_size";
  experts.intermediate_default = intermediate_size;
  experts.normalizes = {"norm_topk_prob", false};
  experts.file_path = "mlp";
  experts.file_gate = "gate_proj";
  experts.file_up = "up_proj";
  experts.file_down = "down_proj";
  return experts;
}

constexpr DecoderFamily qwen2_moe() {
  DecoderFamily family = qwen("qwen2_moe", "Qwen2Moe");
  family.sizes.hidden = 2048;
  family.sizes.intermediate = 5632;
  family.sizes.layers = 24;
  family.sizes.heads = family.sizes.key_heads = 16;
  family.biases.qkv = {"qkv_bias", true};
  family.biases.output = {nullptr, false};
  family.windows = Windows::kEarlyEvenLayers;
  family.experts = qwen_experts(60, 4, 1408);
  family.experts.shared_default = 5632;
  return family;
}

constexpr DecoderFamily qwen3_moe() {
  DecoderFamily family = qwen("qwen3_moe", "Qwen3Moe");
  family.sizes.hidden = 2048;
  family.sizes.intermediate = 6144;
  family.sizes.layers = 24;
  family.sizes.key_heads = 4;
  family.head_norm = HeadNorm::kEachHead;
  family.windows = Windows::kAllIfUsed;
  family.experts = qwen_experts(128, 8, 768);
  return family;
}

constexpr DecoderFamily gemma(const char* model_type, const char* prefix) {
  DecoderFamily family;
  family.model_type = model_type;
  family.prefix = prefix;
  family.sizes.vocab = 256000;
  family.sizes.hidden = 2304;
  family.sizes.intermediate = 9216;
  family.sizes.layers = 26;
  family.sizes.heads = 8;
  family.sizes.key_heads = 4;
  family.sizes.head_dim = 256;
  family.pad_token = 0;
  family.activation = "gelu_pytorch_tanh";
  family.ties_embeddings = family.is_gemma = true;
  family.norm = NormKind::kRmsAddsOne;
  family.norm_placement = NormPlacement::kBeforeAndBehind;
  family.has_default_window = true;
  return family;
}

constexpr DecoderFamily gemma2() {
  DecoderFamily family = gemma("gemma2", "Gemma2");
  family.windows = Windows::kEachSecond;
  family.attention_cap = 50;
  family.logit_cap = 30;
  return family;
}

constexpr DecoderFamily gemma3() {
  DecoderFamily family = gemma("gemma3_text", "Gemma3");
  family.sizes.vocab = 262208;
  family.head_norm = HeadNorm::kEachHead;
  family.windows = Windows::kFiveOfSix;
  family.rotary.theta = 1e6;
  return family;
}

constexpr DecoderFamily phi3() {
  DecoderFamily family;
  family.model_type = "phi3";
  family.prefix = "Phi3";
  family.sizes.vocab = 32064;
  family.sizes.hidden = 3072;
  family.sizes.intermediate = 8192;
  family.pad_token = 32000;
  family.norm_eps = 1e-5;
  family.biases.qkv = family.biases.output = family.biases.mlp = {nullptr, false};
  family.qkv = QkvShape::kPacked;
  family.mlp = MlpShape::kPackedGated;
  family.windows = Windows::kAll;
  family.dropouts.attention = family.dropouts.mlp = "resid_pdrop";
  return family;
}

constexpr DecoderFamily olmo2() {
  DecoderFamily family;
  family.model_type = "olmo2";
  family.prefix = "Olmo2";
  family.sizes.vocab = 50304;
  family.pad_token = 1;
  family.norm_eps = 1e-5;
  family.norm_placement = NormPlacement::kBehind;
  family.head_norm = HeadNorm::kAllHeads;
  return family;
}

// Families with layer norms, and rotary positions of some features.
constexpr DecoderFamily with_layer_norms(const char* model_type, const char* prefix) {
  DecoderFamily family;
  family.model_type = model_type;
  family.prefix = prefix;
  family.norm = NormKind::kLayer;
  family.norm_eps_key = "layer_norm_eps";
  family.norm_eps = 1e-5;
  family.rotary.share = 0.25;
  return family;
}

constexpr DecoderFamily gpt_neox() {
  DecoderFamily family = with_layer_norms("gpt_neox", "GPTNeoX");
  family.sizes.vocab = 50432;
  family.sizes.hidden = 6144;
  family.sizes.intermediate = 24576;
  family.sizes.layers = 44;
  family.sizes.heads = 64;
  family.has_padding_row = false;
  family.activation = "gelu";
  family.biases.qkv = family.biases.output = {"attention_bias", true};
  family.biases.mlp = {nullptr, true};
  family.qkv = QkvShape::kByHead;
  family.mlp = MlpShape::kPlain;
  family.parallel_branches = {"use_parallel_residual", true};
  family.rotary.theta_key = "rotary_emb_base";
  family.rotary.share_key = "rotary_pct";
  family.dropouts.embedding = family.dropouts.attention = family.dropouts.mlp = "hidden_dropout";
  family.names.base = "gpt_neox";
  family.names.hub_head = "embed_out";
  family.names.embedding = "embed_in";
  family.names.final_norm = "final_layer_norm";
  family.names.layer_kind = "Layer";
  family.names.attention = "attention";
  family.names.output = "dense";
  family.names.up = "dense_h_to_4h";
  family.names.down = "dense_4h_to_h";
  family.names.activation = "act";
  return family;
}

constexpr DecoderFamily phi() {
  DecoderFamily family = with_layer_norms("phi", "Phi");
  family.sizes.vocab = 51200;
  family.sizes.hidden = 2048;
  family.sizes.intermediate = 8192;
  family.sizes.layers = 24;
  family.activation = "gelu_new";
  family.biases.qkv = family.biases.output = family.biases.mlp = {nullptr, true};
  family.biases.head = true;
  family.mlp = MlpShape::kPlain;
  family.parallel_branches = {nullptr, true};
  family.shares_norm_if_parallel = true;
  family.head_norm = HeadNorm::kEachHead;
  family.head_norm_flag = {"qk_layernorm", false};
  family.rotary.share = 0.5;
  family.dropouts.embedding = "embd_pdrop";
  family.dropouts.attention = family.dropouts.mlp = "resid_pdrop";
  family.names.final_norm = "final_layernorm";
  family.names.output = "dense";
  family.names.query_norm = "q_layernorm";
  family.names.key_norm = "k_layernorm";
  family.names.up = "fc1";
  family.names.down = "fc2";
  family.names.activation = "activation_fn";
  return family;
}

constexpr DecoderFamily stablelm() {
  DecoderFamily family = with_layer_norms("stablelm", "StableLm");
  family.sizes.vocab = 50304;
  family.sizes.hidden = 2560;
  family.sizes.intermediate = 6912;
  family.sizes.key_heads = 32;
  family.biases.qkv = {"use_qkv_bias", false};
  family.biases.output = family.biases.mlp = {nullptr, false};
  family.parallel_branches = {"use_parallel_residual", false};
  family.shares_norm_if_parallel = true;
  family.dropouts.mlp = "hidden_dropout";
  return family;
}

// A family that differs in these only is an entry here.
constexpr DecoderFamily kDecoderFamilies[] = {llama(),     mistral(),   mixtral(), qwen2(),   qwen3(),
                                              qwen2_moe(), qwen3_moe(), gemma2(),  gemma3(),  phi3(),
                                              olmo2(),     gpt_neox(),  phi(),     stablelm()};

}  // namespace

std::string decoder_types() {
  std::string names;
  for (const DecoderFamily& family : kDecoderFamilies) names += text(names.empty() ? "" : ", ", family.model_type);
  return names;
}

const DecoderFamily* find_decoder_family(const std::string& model_type) {
  for (const DecoderFamily& family : kDecoderFamilies)
    if (model_type == family.model_type) return &family;
  return nullptr;
}

}  // namespace accel::nn
