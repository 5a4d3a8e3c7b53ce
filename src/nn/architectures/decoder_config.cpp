#include "nn/architectures/decoder_config.hpp"

#include <cmath>
#include <iterator>

#include "base/error.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"

namespace accel::nn {
namespace {

// Which layers have a window, where `layer_types` does not say so.
enum class Windows : uint8_t { kNone, kAll, kLateLayers, kEachSecond, kFiveOfSix };

struct DecoderFamily {
  const char *model_type, *prefix;
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_key_heads;
  int64_t head_dim;  // 0: hidden_size / num_heads
  double norm_eps;
  bool ties_embeddings, has_qkv_bias, fuses_products;
  bool is_gemma;  // norms add one, embeddings are scaled, attention by query_pre_attn_scalar
  NormPlacement norm_placement;
  HeadNorm head_norm;
  Windows windows;
  double attention_cap, logit_cap;
  int64_t pad_token;  // -1: none
};

constexpr auto kBefore = NormPlacement::kBefore;
constexpr auto kBehind = NormPlacement::kBehind;
constexpr auto kAround = NormPlacement::kBeforeAndBehind;

// A family that differs in these only is a row here.
constexpr DecoderFamily kDecoderFamilies[] = {
    {"llama", "Llama", 32000,           4096,           11008, 32, 32, 0, 0, 1e-6, false, false, false,
     false,   kBefore, HeadNorm::kNone, Windows::kNone, 0,     0,  -1},
    {"mistral", "Mistral", 32000,           4096,          14336, 32, 32, 8, 0, 1e-6, false, false, false,
     false,     kBefore,   HeadNorm::kNone, Windows::kAll, 0,     0,  -1},
    {"qwen2",
     "Qwen2",
     151936,
     4096,
     22016,
     32,
     32,
     32,
     0,
     1e-6,
     false,
     true,
     false,
     false,
     kBefore,
     HeadNorm::kNone,
     Windows::kLateLayers,
     0,
     0,
     -1},
    {"qwen3",
     "Qwen3",
     151936,
     4096,
     22016,
     32,
     32,
     32,
     128,
     1e-6,
     false,
     false,
     false,
     false,
     kBefore,
     HeadNorm::kEachHead,
     Windows::kLateLayers,
     0,
     0,
     -1},
    {"gemma2",
     "Gemma2",
     256000,
     2304,
     9216,
     26,
     8,
     4,
     256,
     1e-6,
     true,
     false,
     false,
     true,
     kAround,
     HeadNorm::kNone,
     Windows::kEachSecond,
     50,
     30,
     0},
    {"gemma3_text",
     "Gemma3",
     262208,
     2304,
     9216,
     26,
     8,
     4,
     256,
     1e-6,
     true,
     false,
     false,
     true,
     kAround,
     HeadNorm::kEachHead,
     Windows::kFiveOfSix,
     0,
     0,
     0},
    {"phi3", "Phi3",  32064,           3072,          8192, 32, 32,   0, 0, 1e-5, false, false, true,
     false,  kBefore, HeadNorm::kNone, Windows::kAll, 0,    0,  32000},
    {"olmo2",
     "Olmo2",
     50304,
     4096,
     11008,
     32,
     32,
     0,
     0,
     1e-5,
     false,
     false,
     false,
     false,
     kBehind,
     HeadNorm::kAllHeads,
     Windows::kNone,
     0,
     0,
     1},
};

const DecoderFamily* find_decoder_family(const std::string& model_type) {
  for (const DecoderFamily& family : kDecoderFamilies)
    if (model_type == family.model_type) return &family;
  return nullptr;
}

void refuse_decoder_settings(const Json& json, const DecoderFamily& family) {
  refuse_quantization(json);
  require_model_class(json, text(family.prefix, "ForCausalLM").c_str());
  require(!json_flag(json, "use_bidirectional_attention", false), Status::kUnsupported,
          "use_bidirectional_attention is true; only false is supported");
  for (const char* key : {"resid_pdrop", "embd_pdrop"})
    require(json_number(json, key, 0) == 0, Status::kUnsupported, key, " is ", json_number(json, key, 0),
            "; only 0 is supported");
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
  const bool has_default = family.is_gemma || (family.windows == Windows::kAll && !family.fuses_products);
  const bool is_set =
      json_member(json, "sliding_window") != nullptr || (has_default && !says_none(json, "sliding_window"));
  if (!is_set || family.windows == Windows::kNone) return windows;
  const int64_t window = size_member(json, "sliding_window", 4096);
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
    if (is_local) windows[layer] = window;
  }
  return windows;
}

// Gemma 3 has frequencies of their own for layers with a window.
void read_rotary(const Json& json, const DecoderFamily& family, DecoderConfig& config) {
  config.has_local_rotary = family.windows == Windows::kFiveOfSix;
  const Json* const parameters = json_member(json, "rope_parameters");
  const Json* const full = parameters == nullptr ? nullptr : json_member(*parameters, "full_attention");
  config.rotary = read_rotary_settings(json, config.head_dim, config.has_local_rotary ? 1e6 : 1e4, full);
  if (!config.has_local_rotary) return;
  const Json* const local = parameters == nullptr ? nullptr : json_member(*parameters, "sliding_attention");
  if (local != nullptr) {
    config.local_rotary = read_rotary_settings(json, config.head_dim, 1e4, local);
    return;
  }
  config.local_rotary = {config.head_dim, config.rotary.rotated_dim, json_number(json, "rope_local_base_freq", 1e4)};
}

void read_decoder_experts(const Json& json, DecoderConfig& config) {
  if (json_member(json, "num_local_experts") == nullptr) return;
  config.num_experts = size_member(json, "num_local_experts", 8);
  config.num_experts_per_token = size_member(json, "num_experts_per_tok", 2);
  require(config.activation == "silu" && !config.mlp_bias && !config.fuses_products, Status::kUnsupported,
          "num_local_experts is ", config.num_experts, ", hidden_act is '", config.activation, "' and mlp_bias is ",
          config.mlp_bias, "; expected silu and no bias in experts");
}

void read_decoder_sizes(const Json& json, const DecoderFamily& family, DecoderConfig& config) {
  config.vocab_size = size_member(json, "vocab_size", family.vocab_size);
  config.padding_row = says_none(json, "pad_token_id") ? -1 : json_integer(json, "pad_token_id", family.pad_token);
  if (config.padding_row >= config.vocab_size) config.padding_row = -1;
  config.hidden_size = size_member(json, "hidden_size", family.hidden_size);
  config.intermediate_size = size_member(json, "intermediate_size", family.intermediate_size);
  config.num_layers = size_member(json, "num_hidden_layers", family.num_layers);
  config.num_heads = size_member(json, "num_attention_heads", family.num_heads);
  config.num_key_heads =
      size_member(json, "num_key_value_heads", family.num_key_heads == 0 ? config.num_heads : family.num_key_heads);
  require(config.num_heads % config.num_key_heads == 0, Status::kInvalidArgument, "num_attention_heads ",
          config.num_heads, " is not divisible by num_key_value_heads ", config.num_key_heads,
          "; as many query heads share each key head");
  const bool finds_head_dim = family.head_dim == 0;
  require(!finds_head_dim || json_integer(json, "head_dim", 0) != 0 || config.hidden_size % config.num_heads == 0,
          Status::kInvalidArgument, "hidden_size ", config.hidden_size, " is not divisible by num_attention_heads ",
          config.num_heads, "; every head needs the same size");
  config.head_dim =
      size_member(json, "head_dim", finds_head_dim ? config.hidden_size / config.num_heads : family.head_dim);
}

}  // namespace

bool is_decoder_type(const std::string& model_type) { return find_decoder_family(model_type) != nullptr; }

std::string decoder_types() {
  std::string names;
  for (const DecoderFamily& family : kDecoderFamilies) names += text(names.empty() ? "" : ", ", family.model_type);
  return names;
}

DecoderConfig read_decoder_config(const Json& json) {
  const std::string model_type = json_text(json, "model_type", "llama");
  const DecoderFamily* const found = find_decoder_family(model_type);
  require(found != nullptr, Status::kUnsupported, "model_type '", model_type, "' is no decoder; expected one of ",
          decoder_types());
  const DecoderFamily& family = *found;
  refuse_decoder_settings(json, family);
  DecoderConfig config{};
  config.prefix = family.prefix;
  read_decoder_sizes(json, family, config);
  const std::string activation = family.is_gemma ? "gelu_pytorch_tanh" : "silu";
  config.activation = json_text(json, "hidden_activation", json_text(json, "hidden_act", activation));
  require(Activation::knows(config.activation), Status::kUnsupported, "hidden_act '", config.activation,
          "' is not known");
  config.initializer_range = initializer_range(json);
  config.norm_eps = json_number(json, "rms_norm_eps", family.norm_eps);
  require(config.norm_eps >= 0, Status::kInvalidArgument, "rms_norm_eps is ", config.norm_eps, "; expected 0 or more");
  config.attention.dropout = json_number(json, "attention_dropout", 0.0);
  check_probability(config.attention.dropout, "attention_dropout");
  const bool has_bias = json_flag(json, "attention_bias", false);
  config.qkv_bias = family.has_qkv_bias || has_bias;
  config.output_bias = has_bias;
  config.mlp_bias = json_flag(json, "mlp_bias", false);
  config.ties_embeddings = json_flag(json, "tie_word_embeddings", family.ties_embeddings);
  config.fuses_products = family.fuses_products;
  config.norm_placement = family.norm_placement;
  config.head_norm = family.head_norm;
  config.norm_adds_one = config.scales_embeddings = family.is_gemma;
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
  read_decoder_experts(json, config);
  return config;
}

}  // namespace accel::nn
