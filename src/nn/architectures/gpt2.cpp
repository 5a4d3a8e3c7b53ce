// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/gpt2.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "json/json.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/conv1d.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/split_heads.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

struct Gpt2Config {
  int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;
  std::string activation_function;
  double resid_pdrop, embd_pdrop, attn_pdrop;
  double layer_norm_epsilon, initializer_range;
  bool scale_attn_weights, scale_attn_by_inverse_layer_idx, tie_word_embeddings;
};

// GPT-2 has names of its own beside those of other models.
int64_t size_of(const Json& json, const char* key, const char* alias, int64_t otherwise) {
  return size_member(json, key, json_integer(json, alias, otherwise));
}

// Unsupported settings that would change the result.
void refuse_unsupported(const Json& json) {
  for (const char* key : {"add_cross_attention", "reorder_and_upcast_attn"})
    require(!json_flag(json, key, false), Status::kUnsupported, key, " is true; only false is supported");
  const Json* const pruned = json_member(json, "pruned_heads");
  require(pruned == nullptr || is_empty(*pruned), Status::kUnsupported,
          "pruned_heads is set; remove it from the configuration");
  refuse_quantization(json);
  require_model_class(json, "GPT2LMHeadModel");
}

Gpt2Config read_config(const Json& json) {
  refuse_unsupported(json);
  Gpt2Config config;
  config.vocab_size = size_member(json, "vocab_size", 50257);
  config.n_positions = size_of(json, "n_positions", "max_position_embeddings", 1024);
  config.n_embd = size_of(json, "n_embd", "hidden_size", 768);
  config.n_layer = layers_member(json, "n_layer", json_integer(json, "num_hidden_layers", 12));
  config.n_head = size_of(json, "n_head", "num_attention_heads", 12);
  config.n_inner = size_member(json, "n_inner", 4 * config.n_embd);
  require(config.n_embd % config.n_head == 0, Status::kInvalidArgument, "n_embd ", config.n_embd,
          " is not divisible by n_head ", config.n_head, "; every head needs the same size");
  config.activation_function = json_text(json, "activation_function", "gelu_new");
  require(Activation::knows(config.activation_function), Status::kUnsupported, "activation_function '",
          config.activation_function, "' is not known");
  config.resid_pdrop = json_number(json, "resid_pdrop", 0.1);
  config.embd_pdrop = json_number(json, "embd_pdrop", 0.1);
  config.attn_pdrop = json_number(json, "attn_pdrop", 0.1);
  check_probability(config.attn_pdrop, "attn_pdrop");
  config.layer_norm_epsilon = json_number(json, "layer_norm_epsilon", 1e-5);
  config.initializer_range = initializer_range(json);
  config.scale_attn_weights = json_flag(json, "scale_attn_weights", true);
  config.scale_attn_by_inverse_layer_idx = json_flag(json, "scale_attn_by_inverse_layer_idx", false);
  config.tie_word_embeddings = json_flag(json, "tie_word_embeddings", true);
  return config;
}

// Projections at the end of a residual branch are initialised smaller, by the number of branches.
double residual_deviation(const Gpt2Config& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

ModulePtr projection(int64_t in_features, int64_t out_features, double deviation) {
  return std::make_shared<Conv1d>(normal_weight(in_features, out_features, deviation, at::kFloat),
                                  constant_parameter(0, {out_features}));
}

class Gpt2Attention final : public Module, public AttentionHeads, public CachedAttention {
 public:
  Gpt2Attention(const Gpt2Config& config, int64_t layer)
      : Module("GPT2Attention"),
        AttentionHeads(config.n_head, config.n_head, config.n_embd / config.n_head),
        dropout_(config.attn_pdrop) {
    if (config.scale_attn_weights)
      scale_ = 1.0 / std::sqrt(static_cast<double>(config.n_embd) / static_cast<double>(config.n_head));
    if (config.scale_attn_by_inverse_layer_idx) scale_ /= static_cast<double>(layer + 1);
    add_child("c_attn", c_attn_ = projection(config.n_embd, 3 * config.n_embd, config.initializer_range));
    add_child("c_proj", c_proj_ = projection(config.n_embd, config.n_embd, residual_deviation(config)));
    add_child("resid_dropout", resid_dropout_ = std::make_shared<Dropout>(config.resid_pdrop));
  }
  std::vector<std::string> input_names() const override {
    return {"hidden_states", "past_key_values", "attention_mask"};
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    Heads heads = split_heads(c_attn_->call(tensor_input(inputs, 0, kind())), head_size());
    const c10::IValue* const past = past_input(inputs, 1, kind());
    AttentionRule rule{is_training() ? dropout_ : 0.0, scale_};
    if (inputs.size() > 2 && !inputs[2].isNone()) rule.mask = tensor_input(inputs, 2, kind());
    CachedHeads attended;
    {
      const auto branch = branch_of_rank(rule.dropout, heads.query.device());
      attended = attend_behind(past, heads.query, std::move(heads.key), std::move(heads.value), rule);
    }
    at::Tensor output = resid_dropout_->call(c_proj_->call(join_heads(attended.mixed)));
    if (past == nullptr) return output;
    return tree::new_list({std::move(output), std::move(attended.cache)});
  }

 private:
  double dropout_;
  double scale_ = 1.0;
  ModulePtr c_attn_, c_proj_, resid_dropout_;
};

class Gpt2Mlp final : public Module {
 public:
  explicit Gpt2Mlp(const Gpt2Config& config) : Module("GPT2MLP") {
    add_child("c_fc", c_fc_ = projection(config.n_embd, config.n_inner, config.initializer_range));
    add_child("c_proj", c_proj_ = projection(config.n_inner, config.n_embd, residual_deviation(config)));
    add_child("act", act_ = std::make_shared<Activation>(config.activation_function));
    add_child("dropout", dropout_ = std::make_shared<Dropout>(config.resid_pdrop));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    return dropout_->call(c_proj_->call(act_->call(c_fc_->call(only_tensor(inputs)))));
  }

 private:
  ModulePtr c_fc_, c_proj_, act_, dropout_;
};

class Gpt2Block final : public Module {
 public:
  Gpt2Block(const Gpt2Config& config, int64_t layer) : Module("GPT2Block") {
    add_child("ln_1", ln_1_ = std::make_shared<LayerNorm>(config.n_embd, config.layer_norm_epsilon));
    add_child("attn", attn_ = std::make_shared<Gpt2Attention>(config, layer));
    add_child("ln_2", ln_2_ = std::make_shared<LayerNorm>(config.n_embd, config.layer_norm_epsilon));
    add_child("mlp", mlp_ = std::make_shared<Gpt2Mlp>(config));
  }
  std::vector<std::string> input_names() const override { return attn_->input_names(); }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    Inputs attended = inputs;
    attended[0] = ln_1_->call(hidden);
    const c10::IValue attention = attn_->call(attended);
    if (attention.isTensor()) return with_mlp(hidden + attention.toTensor());
    const auto outputs = tree::sequence_items(attention);
    return tree::new_list({with_mlp(hidden + outputs[0].toTensor()), outputs[1]});
  }

 private:
  at::Tensor with_mlp(const at::Tensor& mixed) { return mixed + mlp_->call(ln_2_->call(mixed)); }

  ModulePtr ln_1_, attn_, ln_2_, mlp_;
};

class Gpt2Model final : public Module, public PositionLimit {
 public:
  std::vector<std::string> input_names() const override {
    return {"input_ids", "past_key_values", "attention_mask", "position_ids"};
  }
  int64_t max_positions() const override { return n_positions_; }
  explicit Gpt2Model(const Gpt2Config& config) : Module("GPT2Model"), n_positions_(config.n_positions) {
    add_child("wte", wte_ = embedding(config.vocab_size, config));
    add_child("wpe", wpe_ = embedding(config.n_positions, config));
    add_child("drop", drop_ = std::make_shared<Dropout>(config.embd_pdrop));
    const ModulePtr blocks = std::make_shared<Module>("ModuleList");
    for (int64_t layer = 0; layer < config.n_layer; layer++)
      blocks->add_child(std::to_string(layer), blocks_.emplace_back(std::make_shared<Gpt2Block>(config, layer)));
    add_child("h", blocks);
    add_child("ln_f", ln_f_ = std::make_shared<LayerNorm>(config.n_embd, config.layer_norm_epsilon));
  }

  // A tensor passes along the parts, and with a cache a stream, with the keys and values of the stage's layers in the
  // place of those of all.
  ModuleChain chain() override {
    ModuleChain chain{{"embed", {"wte", "wpe", "drop"}, [this](const c10::IValue& input) {
                         return passed(embed(tree::sequence_items(input).vec()));
                       }}};
    for (const ModulePtr& block : blocks_) {
      const std::string name = text("h.", chain.size() - 1);
      chain.push_back({name, {name}, [block](const c10::IValue& input) {
                         if (input.isTensor()) return block->call(Inputs{input});
                         DecoderStream stream = DecoderStream::of(input);
                         stream.run_layer(*block, {}, mask_of(stream));
                         return stream.value();
                       }});
    }
    chain.push_back({"head", {"ln_f"}, [norm = ln_f_](const c10::IValue& input) {
                       if (input.isTensor()) return norm->call(Inputs{input});
                       DecoderStream stream = DecoderStream::of(input);
                       return stream.output(norm->call(stream.hidden));
                     }});
    return chain;
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    require_layers(past_input(inputs, 1, kind()), blocks_.size());
    DecoderStream stream = embed(inputs);
    const c10::IValue mask = mask_of(stream);
    for (const ModulePtr& block : blocks_) stream.run_layer(*block, {}, mask);
    return stream.output(ln_f_->call(stream.hidden));
  }

 private:
  static c10::IValue passed(const DecoderStream& stream) {
    return stream.past || stream.tokens_mask.defined() ? stream.value() : stream.hidden;
  }

  static c10::IValue mask_of(const DecoderStream& stream) {
    const at::Tensor mask = stream.mask(/*window=*/0);
    return mask.defined() ? c10::IValue(mask) : c10::IValue();
  }

  DecoderStream embed(const Inputs& inputs) {
    const at::Tensor& tokens = tensor_input(inputs, 0, kind());
    require(tokens.dim() == 2, Status::kShapeMismatch, "GPT-2 was called with the shape ", tokens.sizes(),
            "; expected token ids [batch, length]");
    DecoderStream stream = DecoderStream::behind(past_input(inputs, 1, kind()), tokens);
    const bool has_positions = stream.positions.defined();
    const int64_t length = has_positions ? stream.positions.max().item<int64_t>() + 1
                                         : stream.begin + whole_sequence_length(tokens.size(1));
    require(length <= n_positions_, Status::kShapeMismatch, "GPT-2 was called with ", length,
            " positions; expected at most n_positions = ", n_positions_);
    const auto given = [&](size_t place) { return place < inputs.size() ? inputs[place] : c10::IValue(); };
    stream.take_padding(given(2), given(3), tokens.size(0));
    const at::Tensor positions = stream.positions.defined()
                                     ? stream.positions
                                     : sequence_positions(stream.begin, tokens.size(1), tokens.device());
    stream.hidden = drop_->call(wte_->call(tokens) + wpe_->call(positions));
    return stream;
  }

  static ModulePtr embedding(int64_t rows, const Gpt2Config& config) {
    return std::make_shared<Embedding>(normal_weight(rows, config.n_embd, config.initializer_range, at::kFloat));
  }

  int64_t n_positions_;
  ModulePtr wte_, wpe_, drop_, ln_f_;
  std::vector<ModulePtr> blocks_;
};

class Gpt2LmHeadModel final : public Module {
 public:
  std::vector<std::string> input_names() const override { return transformer_->input_names(); }
  explicit Gpt2LmHeadModel(const Gpt2Config& config) : Module("GPT2LMHeadModel") {
    add_child("transformer", transformer_ = std::make_shared<Gpt2Model>(config));
    at::Tensor weight = config.tie_word_embeddings
                            ? nn::find_tensor(*transformer_, "wte.weight")
                            : normal_weight(config.vocab_size, config.n_embd, config.initializer_range, at::kFloat);
    add_child("lm_head", lm_head_ = std::make_shared<Linear>(std::move(weight), at::Tensor()));
  }

  ModuleChain chain() override {
    return chain_with_head(transformer_->chain(), "transformer", "lm_head",
                           [this](const c10::IValue& output) { return scores_of(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return scores_of(transformer_->call(inputs)); }

 private:
  c10::IValue scores_of(const c10::IValue& output) {
    return with_scores(output, [this](const at::Tensor& states) { return lm_head_->call(states); });
  }

  ModulePtr transformer_, lm_head_;
};

}  // namespace

ModulePtr build_gpt2(const Json& json) {
  const at::ScalarType dtype = weight_dtype(json);
  const auto model = std::make_shared<Gpt2LmHeadModel>(read_config(json));
  if (dtype != at::kFloat) model->to(dtype, std::nullopt);
  return model;
}

}  // namespace accel::nn
