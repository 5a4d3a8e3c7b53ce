// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/decoder_config.hpp"

#include <cmath>

#include "base/error.hpp"
#include "nn/architectures/decoder_family.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"

namespace accel::nn {
namespace {

void refuse_decoder_settings(const Json& json, const DecoderFamily& family) {
  refuse_quantization(json);
  require_model_class(json, text(family.prefix, "ForCausalLM").c_str());
  require(!json_flag(json, "use_bidirectional_attention", false), Status::kUnsupported,
          "use_bidirectional_attention is true; only false is supported");
  require(family.head_norm != HeadNorm::kNone || !json_flag(json, "qk_layernorm", false), Status::kUnsupported,
          "qk_layernorm is true, and a ", family.model_type, " has none here; only false is supported");
  const double noise = json_number(json, "router_jitter_noise", 0);
  require(noise == 0, Status::kUnsupported, "router_jitter_noise is ", noise, "; only 0 is supported");
}

bool decoder_flag(const Json& json, const DecoderFlag& flag) {
  return flag.key == nullptr ? flag.otherwise : json_flag(json, flag.key, flag.otherwise);
}

double decoder_dropout(const Json& json, const char* key) {
  if (key == nullptr) return 0;
  const double probability = json_number(json, key, 0);
  check_probability(probability, key);
  return probability;
}

double cap_member(const Json& json, const char* key, double otherwise) {
  if (says_none(json, key)) return 0;
  const double cap = json_number(json, key, otherwise);
  require(cap >= 0, Status::kInvalidArgument, key, " is ", cap, "; expected more than 0, or null");
  return cap;
}

bool has_window(const DecoderFamily& family, const Json& json, int64_t layer) {
  switch (family.windows) {
    case Windows::kNone:
      return false;
    case Windows::kAll:
      return true;
    case Windows::kAllIfUsed:
      return json_flag(json, "use_sliding_window", false);
    case Windows::kEarlyEvenLayers:
      return json_flag(json, "use_sliding_window", false) && layer % 2 == 0 &&
             layer < json_integer(json, "max_window_layers", 28);
    case Windows::kLateLayers:
      return json_flag(json, "use_sliding_window", false) && layer >= json_integer(json, "max_window_layers", 28);
    case Windows::kEachSecond:
      return layer % 2 == 0;
    case Windows::kFiveOfSix:
      return (layer + 1) % size_member(json, "sliding_window_pattern", 6) != 0;
  }
  return false;
}

std::vector<int64_t> read_windows(const Json& json, const DecoderFamily& family, int64_t num_layers) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  const bool is_set = json_member(json, "sliding_window") != nullptr ||
                      (family.has_default_window && !says_none(json, "sliding_window"));
  if (!is_set || family.windows == Windows::kNone) return windows;
  const Json* const types = json_member(json, "layer_types");
  const Json::Items* const items = types == nullptr ? nullptr : types->items();
  require(items == nullptr || items->size() == windows.size(), Status::kInvalidArgument, "layer_types has ",
          items == nullptr ? 0 : items->size(), " entries; expected num_hidden_layers, ", num_layers);
  for (size_t layer = 0; layer < windows.size(); layer++) {
    bool is_local = has_window(family, json, static_cast<int64_t>(layer));
    if (items != nullptr) {
      const std::string* const type = (*items)[layer].text();
      is_local = type != nullptr && *type == "sliding_attention";
      require(is_local || (type != nullptr && *type == "full_attention"), Status::kUnsupported, "layer_types has ",
              print_json((*items)[layer]), "; expected \"full_attention\" or \"sliding_attention\"");
    }
    if (is_local) windows[layer] = size_member(json, "sliding_window", 4096);
  }
  return windows;
}

// Gemma 3 has frequencies of their own for layers with a window.
void read_rotary(const Json& json, const DecoderFamily& family, DecoderConfig& config) {
  const Json* const parameters = json_member(json, "rope_parameters");
  const Json* const full = parameters == nullptr ? nullptr : json_member(*parameters, "full_attention");
  config.rotary = read_rotary_settings(json, config.head_dim, family.rotary, full);
  if (family.windows != Windows::kFiveOfSix) return;
  const Json* const local = parameters == nullptr ? nullptr : json_member(*parameters, "sliding_attention");
  config.local_rotary = local != nullptr ? read_rotary_settings(json, config.head_dim, RotaryDefaults(), local)
                                         : RotarySettings{config.head_dim, config.rotary.rotated_dim,
                                                          json_number(json, "rope_local_base_freq", 1e4)};
}

bool is_in_list(const Json& json, const char* key, int64_t number) {
  const Json* const list = json_member(json, key);
  if (list == nullptr) return false;
  require(list->items() != nullptr, Status::kTypeMismatch, key, " is ", print_json(*list),
          "; expected a list of numbers of layers");
  for (const Json& item : *list->items()) {
    require(item.integer().has_value(), Status::kTypeMismatch, key, " has ", print_json(item),
            "; expected numbers of layers");
    if (*item.integer() == number) return true;
  }
  return false;
}

void read_decoder_experts(const Json& json, const DecoderFamily& family, DecoderConfig& config) {
  DecoderExperts& experts = config.experts;
  const DecoderExpertKeys& keys = family.experts;
  experts.layers.assign(static_cast<size_t>(config.num_layers), false);
  constexpr const char* kNumber = "num_local_experts";  // which transformers 5 writes for all families
  const bool is_given =
      keys.number != nullptr && (json_member(json, keys.number) != nullptr || json_member(json, kNumber) != nullptr);
  if (!is_given && keys.number_default == 0) return;
  const char* const number_key = json_member(json, keys.number) != nullptr ? keys.number : kNumber;
  experts.number = size_member(json, number_key, keys.number_default);
  experts.per_token = size_member(json, "num_experts_per_tok", keys.per_token);
  experts.intermediate_size =
      size_member(json, keys.intermediate_size,
                  keys.intermediate_default == 0 ? config.intermediate_size : keys.intermediate_default);
  if (keys.shared_default > 0)
    experts.shared_size = size_member(json, "shared_expert_intermediate_size", keys.shared_default);
  experts.normalizes_weights = decoder_flag(json, keys.normalizes);
  experts.gives_router_loss = json_flag(json, "output_router_logits", false);
  experts.router_loss_factor = json_number(json, "router_aux_loss_coef", 0.001);
  require(!experts.gives_router_loss || experts.router_loss_factor >= 0, Status::kInvalidArgument,
          "router_aux_loss_coef is ", experts.router_loss_factor, "; expected 0 or more");
  const int64_t step = size_member(json, "decoder_sparse_step", 1);
  for (int64_t layer = 0; layer < config.num_layers; layer++)
    experts.layers[static_cast<size_t>(layer)] = (layer + 1) % step == 0 && !is_in_list(json, "mlp_only_layers", layer);
  if (keys.file_path != nullptr) experts.files = {keys.file_path, keys.file_gate, keys.file_up, keys.file_down};
  require(config.activation == "silu" && !config.biases.mlp && family.mlp == MlpShape::kGated, Status::kUnsupported,
          number_key, " is ", experts.number, ", hidden_act is '", config.activation, "' and mlp_bias is ",
          config.biases.mlp, "; expected silu and no bias in experts");
}

void read_decoder_sizes(const Json& json, const DecoderFamily& family, DecoderConfig& config) {
  config.vocab_size = size_member(json, "vocab_size", family.sizes.vocab);
  config.padding_row = says_none(json, "pad_token_id") ? -1 : json_integer(json, "pad_token_id", family.pad_token);
  if (config.padding_row >= config.vocab_size || !family.has_padding_row) config.padding_row = -1;
  config.hidden_size = size_member(json, "hidden_size", family.sizes.hidden);
  config.intermediate_size = size_member(json, "intermediate_size", family.sizes.intermediate);
  config.num_layers = layers_member(json, "num_hidden_layers", family.sizes.layers);
  config.num_heads = size_member(json, "num_attention_heads", family.sizes.heads);
  config.num_key_heads =
      size_member(json, "num_key_value_heads", family.sizes.key_heads == 0 ? config.num_heads : family.sizes.key_heads);
  require(config.num_heads % config.num_key_heads == 0, Status::kInvalidArgument, "num_attention_heads ",
          config.num_heads, " is not divisible by num_key_value_heads ", config.num_key_heads,
          "; as many query heads share each key head");
  require(family.qkv != QkvShape::kByHead || config.num_key_heads == config.num_heads, Status::kUnsupported,
          "num_key_value_heads is ", config.num_key_heads, " of ", config.num_heads,
          " heads, and query, key and value of a head are one product; expected as many");
  const bool finds_head_dim = family.sizes.head_dim == 0;
  require(!finds_head_dim || json_integer(json, "head_dim", 0) != 0 || config.hidden_size % config.num_heads == 0,
          Status::kInvalidArgument, "hidden_size ", config.hidden_size, " is not divisible by num_attention_heads ",
          config.num_heads, "; every head needs the same size");
  config.head_dim =
      size_member(json, "head_dim", finds_head_dim ? config.hidden_size / config.num_heads : family.sizes.head_dim);
}

}  // namespace

bool is_decoder_type(const std::string& model_type) { return find_decoder_family(model_type) != nullptr; }

DecoderConfig read_decoder_config(const Json& json) {
  const std::string model_type = json_text(json, "model_type", "llama");
  const DecoderFamily* const found = find_decoder_family(model_type);
  require(found != nullptr, Status::kUnsupported, "model_type '", model_type, "' is not a decoder; expected one of ",
          decoder_types());
  const DecoderFamily& family = *found;
  refuse_decoder_settings(json, family);
  DecoderConfig config{};
  config.prefix = family.prefix;
  read_decoder_sizes(json, family, config);
  config.names = family.names;
  config.activation = json_text(json, "hidden_activation", json_text(json, "hidden_act", family.activation));
  require(Activation::knows(config.activation), Status::kUnsupported, "hidden_act '", config.activation,
          "' is not known");
  config.initializer_range = initializer_range(json);
  config.norm_eps = json_number(json, family.norm_eps_key, family.norm_eps);
  require(config.norm_eps >= 0, Status::kInvalidArgument, family.norm_eps_key, " is ", config.norm_eps,
          "; expected 0 or more");
  config.attention.dropout = decoder_dropout(json, "attention_dropout");
  config.dropouts = {decoder_dropout(json, family.dropouts.embedding), decoder_dropout(json, family.dropouts.attention),
                     decoder_dropout(json, family.dropouts.mlp)};
  config.biases = {decoder_flag(json, family.biases.qkv), decoder_flag(json, family.biases.output),
                   decoder_flag(json, family.biases.mlp), family.biases.head};
  config.ties_embeddings = json_flag(json, "tie_word_embeddings", family.ties_embeddings);
  config.qkv = family.qkv;
  config.mlp = family.mlp;
  config.norm = family.norm;
  config.has_parallel_branches = decoder_flag(json, family.parallel_branches);
  config.norm_placement =
      config.has_parallel_branches && family.shares_norm_if_parallel ? NormPlacement::kOnce : family.norm_placement;
  config.head_norm = decoder_flag(json, family.head_norm_flag) ? family.head_norm : HeadNorm::kNone;
  config.scales_embeddings = family.is_gemma;
  if (family.is_gemma) {
    const double scalar = json_number(json, "query_pre_attn_scalar", 256);
    require(scalar > 0, Status::kInvalidArgument, "query_pre_attn_scalar is ", scalar, "; expected more than 0");
    config.attention.scale = 1 / std::sqrt(scalar);
  }
  config.attention.cap = cap_member(json, "attn_logit_softcapping", family.attention_cap);
  config.logit_cap = cap_member(json, "final_logit_softcapping", family.logit_cap);
  config.windows = read_windows(json, family, config.num_layers);
  read_rotary(json, family, config);
  config.rotary.max_positions = json_integer(json, "max_position_embeddings", 0);
  config.dtype = weight_dtype(json);
  read_decoder_experts(json, family, config);
  return config;
}

}  // namespace accel::nn
