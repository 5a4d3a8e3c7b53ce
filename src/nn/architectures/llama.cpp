#include "nn/architectures/llama.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/rms_norm.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/rotary_embedding.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/split_heads.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

struct LlamaConfig {
  int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
      head_dim;
  std::string hidden_act;
  double initializer_range, rms_norm_eps, attention_dropout;
  bool attention_bias, mlp_bias, tie_word_embeddings;
  int64_t num_local_experts, num_experts_per_tok;  // 0: each layer has one network for all tokens
  RotarySettings rotary;
  at::ScalarType dtype;
};

LlamaConfig read_llama_config(const Json& json) {
  refuse_quantization(json);
  require_model_class(json, "LlamaForCausalLM");
  LlamaConfig config{};
  config.vocab_size = size_member(json, "vocab_size", 32000);
  config.hidden_size = size_member(json, "hidden_size", 4096);
  config.intermediate_size = size_member(json, "intermediate_size", 11008);
  config.num_hidden_layers = size_member(json, "num_hidden_layers", 32);
  config.num_attention_heads = size_member(json, "num_attention_heads", 32);
  config.num_key_value_heads = size_member(json, "num_key_value_heads", config.num_attention_heads);
  require(config.num_attention_heads % config.num_key_value_heads == 0, Status::kInvalidArgument,
          "num_attention_heads ", config.num_attention_heads, " is not divisible by num_key_value_heads ",
          config.num_key_value_heads, "; as many query heads share each key head");
  require(config.hidden_size % config.num_attention_heads == 0, Status::kInvalidArgument, "hidden_size ",
          config.hidden_size, " is not divisible by num_attention_heads ", config.num_attention_heads,
          "; every head needs the same size");
  config.head_dim = size_member(json, "head_dim", config.hidden_size / config.num_attention_heads);
  config.rotary = read_rotary_settings(json, config.head_dim);
  config.hidden_act = json_text(json, "hidden_act", "silu");
  require(Activation::knows(config.hidden_act), Status::kUnsupported, "hidden_act '", config.hidden_act,
          "' is not known");
  config.initializer_range = initializer_range(json);
  config.rms_norm_eps = json_number(json, "rms_norm_eps", 1e-6);
  require(config.rms_norm_eps >= 0, Status::kInvalidArgument, "rms_norm_eps is ", config.rms_norm_eps,
          "; expected 0 or more");
  config.attention_dropout = json_number(json, "attention_dropout", 0.0);
  check_probability(config.attention_dropout, "attention_dropout");
  config.attention_bias = json_flag(json, "attention_bias", false);
  config.mlp_bias = json_flag(json, "mlp_bias", false);
  config.tie_word_embeddings = json_flag(json, "tie_word_embeddings", false);
  config.dtype = weight_dtype(json);
  if (const Json* const experts = json_member(json, "num_local_experts"); experts == nullptr || experts->is_null())
    return config;
  config.num_local_experts = size_member(json, "num_local_experts", 8);
  config.num_experts_per_tok = size_member(json, "num_experts_per_tok", 2);
  require(config.hidden_act == "silu" && !config.mlp_bias, Status::kUnsupported, "num_local_experts is ",
          config.num_local_experts, ", hidden_act is '", config.hidden_act, "' and mlp_bias is ", config.mlp_bias,
          "; expected silu and no bias in experts");
  return config;
}

ModulePtr linear_layer(int64_t in_features, int64_t out_features, bool bias, const LlamaConfig& config) {
  at::Tensor weight = normal_weight(out_features, in_features, config.initializer_range, config.dtype);
  return std::make_shared<Linear>(std::move(weight),
                                  bias ? constant_parameter(0, {out_features}, config.dtype) : at::Tensor());
}

class LlamaRmsNorm final : public Module {
 public:
  explicit LlamaRmsNorm(const LlamaConfig& config) : Module("LlamaRMSNorm"), epsilon_(config.rms_norm_eps) {
    add_parameter("weight", constant_parameter(1, {config.hidden_size}, config.dtype));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& input = only_tensor(inputs);
    const at::Tensor& weight = parameter(0);
    if (input.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat)
      return at::rms_norm(input, weight.sizes(), weight, epsilon_);
    // The reference rounds before the weight.
    return weight * at::rms_norm(input.to(at::kFloat), weight.sizes(), {}, epsilon_).to(input.scalar_type());
  }

 private:
  double epsilon_;
};

class LlamaAttention final : public Module, public AttentionHeads {
 public:
  explicit LlamaAttention(const LlamaConfig& config)
      : Module("LlamaAttention"),
        AttentionHeads(config.num_attention_heads, config.num_key_value_heads, config.head_dim),
        dropout_(config.attention_dropout) {
    const int64_t width = config.num_attention_heads * config.head_dim;
    const int64_t key_width = config.num_key_value_heads * config.head_dim;
    add_child("q_proj", q_proj_ = linear_layer(config.hidden_size, width, config.attention_bias, config));
    add_child("k_proj", k_proj_ = linear_layer(config.hidden_size, key_width, config.attention_bias, config));
    add_child("v_proj", v_proj_ = linear_layer(config.hidden_size, key_width, config.attention_bias, config));
    add_child("o_proj", o_proj_ = linear_layer(width, config.hidden_size, config.attention_bias, config));
  }
  std::vector<std::string> input_names() const override {
    return {"hidden_states", "position_embeddings", "past_key_values"};
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    require(inputs.size() > 1 && tree::is_sequence(inputs[1]) && tree::sequence_items(inputs[1]).size() == 2,
            Status::kTypeMismatch,
            "input 1 of a module of kind 'LlamaAttention' is not a pair; expected cosines and sines");
    const auto rotation = tree::sequence_items(inputs[1]);
    const at::Tensor cosines = rotation[0].toTensor(), sines = rotation[1].toTensor();
    const at::Tensor query = rotate(heads_of(q_proj_->call(hidden)), cosines, sines);
    at::Tensor key = rotate(heads_of(k_proj_->call(hidden)), cosines, sines), value = heads_of(v_proj_->call(hidden));
    const c10::IValue* const past = past_input(inputs, 2, kind());
    if (past != nullptr) put_behind(*past, key, value);
    const double dropout = is_training() ? dropout_ : 0.0;
    at::Tensor mixed;
    {
      const auto branch = branch_of_rank(dropout, query.device());
      mixed = attend_causally(query, key, value, dropout);
    }
    at::Tensor output = o_proj_->call(join_heads(mixed));
    if (past == nullptr) return output;
    return tree::new_list({std::move(output), tree::new_list({std::move(key), std::move(value)})});
  }

 private:
  at::Tensor heads_of(const at::Tensor& projected) const {
    return projected.unflatten(-1, {-1, head_size()}).transpose(1, 2);
  }

  double dropout_;
  ModulePtr q_proj_, k_proj_, v_proj_, o_proj_;
};

class LlamaMlp final : public Module {
 public:
  explicit LlamaMlp(const LlamaConfig& config) : Module("LlamaMLP") {
    const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
    add_child("gate_proj", gate_proj_ = linear_layer(hidden, inner, config.mlp_bias, config));
    add_child("up_proj", up_proj_ = linear_layer(hidden, inner, config.mlp_bias, config));
    add_child("down_proj", down_proj_ = linear_layer(inner, hidden, config.mlp_bias, config));
    add_child("act_fn", act_fn_ = std::make_shared<Activation>(config.hidden_act));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& input = only_tensor(inputs);
    return down_proj_->call(act_fn_->call(gate_proj_->call(input)) * up_proj_->call(input));
  }

 private:
  ModulePtr gate_proj_, up_proj_, down_proj_, act_fn_;
};

ModulePtr feed_forward(const LlamaConfig& config) {
  if (config.num_local_experts == 0) return std::make_shared<LlamaMlp>(config);
  MixtureSettings settings{config.hidden_size, config.intermediate_size, config.num_local_experts,
                           config.num_experts_per_tok};
  settings.deviation = config.initializer_range;
  settings.dtype = config.dtype;
  return std::make_shared<MixtureOfExperts>(settings);
}

class LlamaDecoderLayer final : public Module {
 public:
  explicit LlamaDecoderLayer(const LlamaConfig& config) : Module("LlamaDecoderLayer") {
    add_child("self_attn", self_attn_ = std::make_shared<LlamaAttention>(config));
    add_child("mlp", mlp_ = feed_forward(config));
    add_child("input_layernorm", input_layernorm_ = std::make_shared<LlamaRmsNorm>(config));
    add_child("post_attention_layernorm", post_attention_layernorm_ = std::make_shared<LlamaRmsNorm>(config));
  }
  std::vector<std::string> input_names() const override { return self_attn_->input_names(); }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    Inputs attended = inputs;
    attended[0] = input_layernorm_->call(hidden);
    const c10::IValue attention = self_attn_->call(attended);
    if (attention.isTensor()) return with_mlp(hidden + attention.toTensor());
    const auto outputs = tree::sequence_items(attention);
    return tree::new_list({with_mlp(hidden + outputs[0].toTensor()), outputs[1]});
  }

 private:
  at::Tensor with_mlp(const at::Tensor& hidden) { return hidden + mlp_->call(post_attention_layernorm_->call(hidden)); }

  ModulePtr self_attn_, mlp_, input_layernorm_, post_attention_layernorm_;
};

// The rotary tables of a stage's last call: its other layers, and mostly the next micro-batch, need the same.
class KeptRotation {
 public:
  template <typename Compute>
  const c10::IValue& tables(const DecoderStream& stream, const Compute& compute) {
    Key key{stream.begin,
            stream.length,
            stream.hidden.device(),
            stream.hidden.scalar_type(),
            SplitSequence::current(),
            c10::InferenceMode::is_enabled()};
    if (!tables_ || key != key_) {
      tables_ = compute(stream);
      key_ = std::move(key);
    }
    return *tables_;
  }

 private:
  using Key = std::tuple<int64_t, int64_t, c10::Device, at::ScalarType, std::shared_ptr<const SplitSequence>, bool>;
  Key key_{0, 0, c10::kCPU, at::kFloat, nullptr, false};
  std::optional<c10::IValue> tables_;
};

class LlamaModel final : public Module {
 public:
  explicit LlamaModel(const LlamaConfig& config) : Module("LlamaModel") {
    add_child("embed_tokens", embed_tokens_ = std::make_shared<Embedding>(normal_weight(
                                  config.vocab_size, config.hidden_size, config.initializer_range, config.dtype)));
    const ModulePtr layers = std::make_shared<Module>("ModuleList");
    for (int64_t layer = 0; layer < config.num_hidden_layers; layer++)
      layers->add_child(std::to_string(layer), layers_.emplace_back(std::make_shared<LlamaDecoderLayer>(config)));
    add_child("layers", layers);
    add_child("norm", norm_ = std::make_shared<LlamaRmsNorm>(config));
    add_child("rotary_emb", rotary_emb_ = std::make_shared<RotaryEmbedding>("LlamaRotaryEmbedding", config.rotary));
  }
  std::vector<std::string> input_names() const override { return {"input_ids", "past_key_values"}; }

  // With a cache, a stage takes and gives the keys and values of its own layers, in the place of those of all.
  ModuleChain chain() override {
    ModuleChain chain{{"embed", {"embed_tokens"}, [this](const c10::IValue& input) {
                         return embed(tree::sequence_items(input).vec()).value();
                       }}};
    const auto kept = std::make_shared<KeptRotation>();
    for (const ModulePtr& layer : layers_) {
      const std::string name = text("layers.", chain.size() - 1);
      chain.push_back({name, {name, "rotary_emb"}, [this, layer, kept](const c10::IValue& input) {
                         DecoderStream stream = DecoderStream::of(input);
                         stream.run_layer(*layer,
                                          {kept->tables(stream, [this](const auto& of) { return rotation(of); })});
                         return stream.value();
                       }});
    }
    chain.push_back(
        {"head", {"norm"}, [this](const c10::IValue& input) { return output_of(DecoderStream::of(input)); }});
    return chain;
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    require_layers(past_input(inputs, 1, kind()), layers_.size());
    DecoderStream stream = embed(inputs);
    const c10::IValue tables = rotation(stream);
    for (const ModulePtr& layer : layers_) stream.run_layer(*layer, {tables});
    return output_of(std::move(stream));
  }

 private:
  DecoderStream embed(const Inputs& inputs) {
    const at::Tensor& tokens = tensor_input(inputs, 0, kind());
    require(tokens.dim() == 2 && tokens.size(1) > 0, Status::kShapeMismatch, "Llama was called with the shape ",
            tokens.sizes(), "; expected token ids [batch, length]");
    DecoderStream stream = DecoderStream::behind(past_input(inputs, 1, kind()), tokens.size(1));
    stream.hidden = embed_tokens_->call(tokens);
    return stream;
  }

  c10::IValue rotation(const DecoderStream& stream) {
    return rotary_emb_->call(
        Inputs{stream.hidden, sequence_positions(stream.begin, stream.length, stream.hidden.device())});
  }

  c10::IValue output_of(DecoderStream stream) { return stream.output(norm_->call(stream.hidden)); }

  ModulePtr embed_tokens_, norm_, rotary_emb_;
  std::vector<ModulePtr> layers_;
};

class LlamaForCausalLm final : public Module {
 public:
  explicit LlamaForCausalLm(const LlamaConfig& config) : Module("LlamaForCausalLM") {
    add_child("model", model_ = std::make_shared<LlamaModel>(config));
    at::Tensor weight = config.tie_word_embeddings ? nn::find_tensor(*model_, "embed_tokens.weight")
                                                   : normal_weight(config.vocab_size, config.hidden_size,
                                                                   config.initializer_range, config.dtype);
    add_child("lm_head", lm_head_ = std::make_shared<Linear>(std::move(weight), at::Tensor()));
  }
  std::vector<std::string> input_names() const override { return model_->input_names(); }

  ModuleChain chain() override {
    return chain_with_head(model_->chain(), "model", "lm_head",
                           [this](const c10::IValue& output) { return scores_of(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return scores_of(model_->call(inputs)); }

 private:
  c10::IValue scores_of(const c10::IValue& output) {
    if (output.isTensor()) return lm_head_->call(output.toTensor());
    const auto parts = tree::sequence_items(output);
    return tree::new_list({lm_head_->call(parts[0].toTensor()), parts[1]});
  }

  ModulePtr model_, lm_head_;
};

}  // namespace

ModulePtr build_llama(const Json& json) { return std::make_shared<LlamaForCausalLm>(read_llama_config(json)); }

}  // namespace accel::nn
