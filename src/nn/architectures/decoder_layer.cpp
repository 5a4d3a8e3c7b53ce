#include "nn/architectures/decoder_layer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/rms_norm.h>

#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/rotary_embedding.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/split_heads.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

class DecoderNorm final : public Module {
 public:
  DecoderNorm(int64_t size, const DecoderConfig& config)
      : Module(config.prefix + "RMSNorm"), epsilon_(config.norm_eps), adds_one_(config.norm_adds_one) {
    add_parameter("weight", constant_parameter(adds_one_ ? 0 : 1, {size}, config.dtype));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& input = only_tensor(inputs);
    const at::Tensor& weight = parameter(0);
    const at::ScalarType computed = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    if (adds_one_)  // the reference rounds behind the weight
      return at::rms_norm(input.to(computed), weight.sizes(), weight.to(computed) + 1, epsilon_)
          .to(input.scalar_type());
    if (input.scalar_type() == computed && weight.scalar_type() == computed)
      return at::rms_norm(input, weight.sizes(), weight, epsilon_);
    // The reference rounds before the weight.
    return weight * at::rms_norm(input.to(computed), weight.sizes(), {}, epsilon_).to(input.scalar_type());
  }

 private:
  double epsilon_;
  bool adds_one_;
};

struct Projections {
  at::Tensor query, key, value;
};

class DecoderAttention final : public Module, public AttentionHeads, public CachedAttention {
 public:
  explicit DecoderAttention(const DecoderConfig& config)
      : Module(config.prefix + "Attention"),
        AttentionHeads(config.num_heads, config.num_key_heads, config.head_dim),
        head_norm_(config.head_norm),
        rule_(config.attention) {
    const int64_t hidden = config.hidden_size, width = config.num_heads * config.head_dim;
    const int64_t key_width = config.num_key_heads * config.head_dim;
    if (config.fuses_products) {
      add_child("o_proj", o_proj_ = decoder_linear(width, hidden, config.output_bias, config));
      add_child("qkv_proj", qkv_proj_ = decoder_linear(hidden, width + 2 * key_width, config.qkv_bias, config));
    } else {
      add_child("q_proj", q_proj_ = decoder_linear(hidden, width, config.qkv_bias, config));
      add_child("k_proj", k_proj_ = decoder_linear(hidden, key_width, config.qkv_bias, config));
      add_child("v_proj", v_proj_ = decoder_linear(hidden, key_width, config.qkv_bias, config));
      add_child("o_proj", o_proj_ = decoder_linear(width, hidden, config.output_bias, config));
    }
    if (head_norm_ == HeadNorm::kNone) return;
    const bool is_whole = head_norm_ == HeadNorm::kAllHeads;
    add_child("q_norm", q_norm_ = decoder_norm(is_whole ? width : config.head_dim, config));
    add_child("k_norm", k_norm_ = decoder_norm(is_whole ? key_width : config.head_dim, config));
  }
  std::vector<std::string> input_names() const override {
    return {"hidden_states", "position_embeddings", "past_key_values", "attention_mask"};
  }
  int64_t window() const override { return rule_.window; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    require(inputs.size() > 1 && tree::is_sequence(inputs[1]) && tree::sequence_items(inputs[1]).size() == 2,
            Status::kTypeMismatch, "input 1 of a module of kind '", kind(),
            "' is not a pair; expected cosines and sines");
    const auto rotation = tree::sequence_items(inputs[1]);
    const at::Tensor cosines = rotation[0].toTensor(), sines = rotation[1].toTensor();
    Projections heads = project(tensor_input(inputs, 0, kind()));
    const at::Tensor query = rotate(heads.query, cosines, sines);
    at::Tensor key = rotate(heads.key, cosines, sines);
    const c10::IValue* const past = past_input(inputs, 2, kind());
    AttentionRule rule = rule_;
    if (!is_training()) rule.dropout = 0;
    if (inputs.size() > 3 && !inputs[3].isNone()) rule.mask = tensor_input(inputs, 3, kind());
    CachedHeads attended;
    {
      const auto branch = branch_of_rank(rule.dropout, query.device());
      attended = attend_behind(past, query, std::move(key), std::move(heads.value), rule);
    }
    at::Tensor output = o_proj_->call(join_heads(attended.mixed));
    if (past == nullptr) return output;
    return tree::new_list({std::move(output), std::move(attended.cache)});
  }

 private:
  Projections project(const at::Tensor& hidden) {
    Projections all;
    if (qkv_proj_ != nullptr) {
      const at::Tensor whole = qkv_proj_->call(hidden);
      const int64_t width = heads() * head_size(), key_width = key_heads() * head_size();
      require_all_heads(whole.size(-1), width + 2 * key_width, "qkv_proj");
      all = {whole.narrow(-1, 0, width), whole.narrow(-1, width, key_width),
             whole.narrow(-1, width + key_width, key_width)};
    } else {
      all = {q_proj_->call(hidden), k_proj_->call(hidden), v_proj_->call(hidden)};
    }
    if (head_norm_ == HeadNorm::kAllHeads) {
      require_all_heads(all.query.size(-1), heads() * head_size(), "q_norm");
      all.query = q_norm_->call(all.query);
      all.key = k_norm_->call(all.key);
    }
    all = {view_heads(all.query, head_size()), view_heads(all.key, head_size()), view_heads(all.value, head_size())};
    if (head_norm_ == HeadNorm::kEachHead) {
      all.query = q_norm_->call(all.query);
      all.key = k_norm_->call(all.key);
    }
    return all;
  }

  void require_all_heads(int64_t features, int64_t expected, const char* name) const {
    require(features == expected, Status::kUnsupported, name, " of a module of kind '", kind(), "' got ", features,
            " features; expected ", expected, ", because it needs all heads on one rank");
  }

  HeadNorm head_norm_;
  AttentionRule rule_;
  ModulePtr q_proj_, k_proj_, v_proj_, qkv_proj_, o_proj_, q_norm_, k_norm_;
};

class DecoderMlp final : public Module {
 public:
  explicit DecoderMlp(const DecoderConfig& config) : Module(config.prefix + "MLP") {
    const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
    if (config.fuses_products) {
      add_child("gate_up_proj", gate_up_proj_ = decoder_linear(hidden, 2 * inner, config.mlp_bias, config));
    } else {
      add_child("gate_proj", gate_proj_ = decoder_linear(hidden, inner, config.mlp_bias, config));
      add_child("up_proj", up_proj_ = decoder_linear(hidden, inner, config.mlp_bias, config));
    }
    add_child("down_proj", down_proj_ = decoder_linear(inner, hidden, config.mlp_bias, config));
    add_child("act_fn", act_fn_ = std::make_shared<Activation>(config.activation));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& input = only_tensor(inputs);
    if (gate_up_proj_ == nullptr)
      return down_proj_->call(act_fn_->call(gate_proj_->call(input)) * up_proj_->call(input));
    const std::vector<at::Tensor> halves = gate_up_proj_->call(input).chunk(2, -1);
    return down_proj_->call(halves[1] * act_fn_->call(halves[0]));
  }

 private:
  ModulePtr gate_proj_, up_proj_, gate_up_proj_, down_proj_, act_fn_;
};

ModulePtr feed_forward(const DecoderConfig& config) {
  if (config.num_experts == 0) return std::make_shared<DecoderMlp>(config);
  MixtureSettings settings{config.hidden_size, config.intermediate_size, config.num_experts,
                           config.num_experts_per_token};
  settings.deviation = config.initializer_range;
  settings.dtype = config.dtype;
  return std::make_shared<MixtureOfExperts>(settings);
}

class DecoderLayer final : public Module {
 public:
  explicit DecoderLayer(const DecoderConfig& config) : Module(config.prefix + "DecoderLayer") {
    const auto norm = [&](const char* name) {
      ModulePtr made = decoder_norm(config.hidden_size, config);
      add_child(name, made);
      return made;
    };
    add_child("self_attn", self_attn_ = std::make_shared<DecoderAttention>(config));
    add_child("mlp", mlp_ = feed_forward(config));
    switch (config.norm_placement) {
      case NormPlacement::kBefore:
        before_attention_ = norm("input_layernorm");
        before_mlp_ = norm("post_attention_layernorm");
        break;
      case NormPlacement::kBehind:
        behind_attention_ = norm("post_attention_layernorm");
        behind_mlp_ = norm("post_feedforward_layernorm");
        break;
      case NormPlacement::kBeforeAndBehind:
        before_attention_ = norm("input_layernorm");
        behind_attention_ = norm("post_attention_layernorm");
        before_mlp_ = norm("pre_feedforward_layernorm");
        behind_mlp_ = norm("post_feedforward_layernorm");
        break;
    }
  }
  std::vector<std::string> input_names() const override { return self_attn_->input_names(); }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    Inputs attended = inputs;
    attended[0] = normalized(before_attention_, hidden);
    const c10::IValue attention = self_attn_->call(attended);
    if (attention.isTensor()) return with_mlp(hidden + normalized(behind_attention_, attention.toTensor()));
    const auto outputs = tree::sequence_items(attention);
    return tree::new_list({with_mlp(hidden + normalized(behind_attention_, outputs[0].toTensor())), outputs[1]});
  }

 private:
  static at::Tensor normalized(const ModulePtr& norm, const at::Tensor& tensor) {
    return norm == nullptr ? tensor : norm->call(tensor);
  }
  at::Tensor with_mlp(const at::Tensor& hidden) {
    return hidden + normalized(behind_mlp_, mlp_->call(normalized(before_mlp_, hidden)));
  }

  ModulePtr self_attn_, mlp_;
  ModulePtr before_attention_, behind_attention_, before_mlp_, behind_mlp_;  // null where there is none
};

}  // namespace

ModulePtr decoder_norm(int64_t size, const DecoderConfig& config) {
  return std::make_shared<DecoderNorm>(size, config);
}

ModulePtr decoder_linear(int64_t in_features, int64_t out_features, bool bias, const DecoderConfig& config) {
  at::Tensor weight = normal_weight(out_features, in_features, config.initializer_range, config.dtype);
  return std::make_shared<Linear>(std::move(weight),
                                  bias ? constant_parameter(0, {out_features}, config.dtype) : at::Tensor());
}

ModulePtr decoder_layer(const DecoderConfig& config) { return std::make_shared<DecoderLayer>(config); }

}  // namespace accel::nn
