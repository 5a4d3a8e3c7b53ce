// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/decoder_layer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/rms_norm.h>

#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "kernels/rms_norm.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/rotary_embedding.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/split_heads.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

class DecoderNorm final : public Module {
 public:
  DecoderNorm(int64_t size, const DecoderConfig& config)
      : Module(config.prefix + "RMSNorm"), epsilon_(config.norm_eps), adds_one_(config.norm == NormKind::kRmsAddsOne) {
    add_parameter("weight", constant_parameter(adds_one_ ? 0 : 1, {size}, config.dtype));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& input = only_tensor(inputs);
    const at::Tensor& weight = parameter(0);
    const bool is_float = input.scalar_type() == at::kFloat;
    if (kernels::can_rms_norm(input, weight))
      return kernels::rms_norm(input, weight, epsilon_,
                               adds_one_  ? kernels::NormWeight::kAddsOne
                               : is_float ? kernels::NormWeight::kPlain
                                          : kernels::NormWeight::kRoundedBefore);
    const at::ScalarType computed = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    if (adds_one_)  // transformers rounds behind the weight
      return at::rms_norm(input.to(computed), weight.sizes(), weight.to(computed) + 1, epsilon_)
          .to(input.scalar_type());
    if (input.scalar_type() == computed && weight.scalar_type() == computed)
      return at::rms_norm(input, weight.sizes(), weight, epsilon_);
    // transformers rounds before the weight.
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
        qkv_(config.qkv),
        head_norm_(config.head_norm),
        rule_(config.attention) {
    const int64_t hidden = config.hidden_size, width = config.num_heads * config.head_dim;
    const int64_t key_width = config.num_key_heads * config.head_dim;
    const auto product = [&](const char* name, int64_t features) {
      ModulePtr made = decoder_linear(hidden, features, config.biases.qkv, config);
      add_child(name, made);
      return made;
    };
    const auto add_output = [&] {
      add_child(config.names.output, output_ = decoder_linear(width, hidden, config.biases.output, config));
    };
    switch (qkv_) {
      case QkvShape::kSeparate:
        q_proj_ = product("q_proj", width);
        k_proj_ = product("k_proj", key_width);
        v_proj_ = product("v_proj", key_width);
        add_output();
        break;
      case QkvShape::kPacked:
        add_output();
        qkv_proj_ = product("qkv_proj", width + 2 * key_width);
        break;
      case QkvShape::kByHead:
        set_fused_heads();
        qkv_proj_ = product("query_key_value", 3 * width);
        add_output();
        break;
    }
    if (head_norm_ == HeadNorm::kNone) return;
    const bool is_whole = head_norm_ == HeadNorm::kAllHeads;
    add_child(config.names.query_norm, q_norm_ = decoder_norm(is_whole ? width : config.head_dim, config));
    add_child(config.names.key_norm, k_norm_ = decoder_norm(is_whole ? key_width : config.head_dim, config));
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
    at::Tensor output = output_->call(join_heads(attended.mixed));
    if (past == nullptr) return output;
    return tree::new_list({std::move(output), std::move(attended.cache)});
  }

 private:
  Projections project(const at::Tensor& hidden) {
    Projections all = qkv_ == QkvShape::kSeparate
                          ? Projections{q_proj_->call(hidden), k_proj_->call(hidden), v_proj_->call(hidden)}
                          : parts_of(qkv_proj_->call(hidden));
    if (head_norm_ == HeadNorm::kAllHeads) {
      require(all.query.size(-1) == heads() * head_size(), Status::kUnsupported, "a norm of all heads of a module of ",
              "kind '", kind(), "' got ", all.query.size(-1), " features; expected ", heads() * head_size(),
              ", because it needs all heads on one rank");
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

  // Queries, keys and values in one tensor, of all heads or of some that a rank has.
  Projections parts_of(const at::Tensor& whole) const {
    const int64_t count = whole.size(-1) / head_size();
    if (qkv_ == QkvShape::kByHead) {
      const std::vector<at::Tensor> parts = whole.unflatten(-1, {-1, 3, head_size()}).unbind(-2);
      return {parts[0].flatten(-2), parts[1].flatten(-2), parts[2].flatten(-2)};
    }
    // A rank has key heads with all of their query heads, or one with some of them.
    const int64_t group = heads() / key_heads();
    const int64_t keys = count >= group + 2 ? count / (group + 2) : 1, queries = count - 2 * keys;
    const auto part = [&](int64_t begin, int64_t number) {
      return whole.narrow(-1, begin * head_size(), number * head_size());
    };
    return {part(0, queries), part(queries, keys), part(queries + keys, keys)};
  }

  QkvShape qkv_;
  HeadNorm head_norm_;
  AttentionRule rule_;
  ModulePtr q_proj_, k_proj_, v_proj_, qkv_proj_, output_, q_norm_, k_norm_;
};

class DecoderMlp final : public Module {
 public:
  DecoderMlp(const DecoderConfig& config, int64_t inner) : Module(config.prefix + "MLP") {
    const int64_t hidden = config.hidden_size;
    const auto product = [&](const char* name, int64_t in_features, int64_t out_features) {
      ModulePtr made = decoder_linear(in_features, out_features, config.biases.mlp, config);
      add_child(name, made);
      return made;
    };
    if (config.mlp == MlpShape::kPackedGated) {
      gate_up_proj_ = product("gate_up_proj", hidden, 2 * inner);
    } else {
      if (config.mlp == MlpShape::kGated) gate_proj_ = product("gate_proj", hidden, inner);
      up_proj_ = product(config.names.up, hidden, inner);
    }
    down_proj_ = product(config.names.down, inner, hidden);
    add_child(config.names.activation, act_fn_ = std::make_shared<Activation>(config.activation));
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& input = only_tensor(inputs);
    if (gate_proj_ != nullptr) return down_proj_->call(act_fn_->call(gate_proj_->call(input)) * up_proj_->call(input));
    if (up_proj_ != nullptr) return down_proj_->call(act_fn_->call(up_proj_->call(input)));
    const std::vector<at::Tensor> halves = gate_up_proj_->call(input).chunk(2, -1);
    return down_proj_->call(halves[1] * act_fn_->call(halves[0]));
  }

 private:
  ModulePtr gate_proj_, up_proj_, gate_up_proj_, down_proj_, act_fn_;
};

ModulePtr feed_forward(const DecoderConfig& config, int64_t layer) {
  const DecoderExperts& experts = config.experts;
  if (!experts.layers[static_cast<size_t>(layer)])
    return std::make_shared<DecoderMlp>(config, config.intermediate_size);
  MixtureSettings settings{config.hidden_size, experts.intermediate_size, experts.number, experts.per_token};
  settings.deviation = config.initializer_range;
  settings.dtype = config.dtype;
  settings.normalizes_weights = experts.normalizes_weights;
  settings.gives_scores = experts.gives_router_loss;
  settings.files = experts.files;
  auto mixture = std::make_shared<MixtureOfExperts>(settings);
  if (experts.shared_size > 0)
    mixture->add_shared_expert(std::make_shared<DecoderMlp>(config, experts.shared_size),
                               decoder_linear(config.hidden_size, 1, /*bias=*/false, config));
  return mixture;
}

class DecoderLayer final : public Module {
 public:
  DecoderLayer(const DecoderConfig& config, int64_t layer)
      : Module(config.prefix + config.names.layer_kind), has_parallel_branches_(config.has_parallel_branches) {
    const auto norm = [&](const char* name) {
      ModulePtr made = decoder_norm(config.hidden_size, config);
      add_child(name, made);
      return made;
    };
    const auto dropout = [&](const char* name, double probability) -> ModulePtr {
      if (probability == 0) return nullptr;
      auto made = std::make_shared<Dropout>(probability);
      add_child(name, made);
      return made;
    };
    add_child(config.names.attention, attention_ = std::make_shared<DecoderAttention>(config));
    add_child("mlp", mlp_ = feed_forward(config, layer));
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
      case NormPlacement::kOnce:
        before_attention_ = norm("input_layernorm");
        break;
    }
    attention_dropout_ = dropout("post_attention_dropout", config.dropouts.attention);
    mlp_dropout_ = dropout("post_mlp_dropout", config.dropouts.mlp);
  }
  std::vector<std::string> input_names() const override { return attention_->input_names(); }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    Inputs attended = inputs;
    attended[0] = passed(before_attention_, hidden);
    const c10::IValue attention = attention_->call(attended);
    const c10::IValue cached = attention.isTensor() ? c10::IValue() : tree::sequence_items(attention)[1];
    at::Tensor branch = attention.isTensor() ? attention.toTensor() : tree::sequence_items(attention)[0].toTensor();
    branch = passed(attention_dropout_, passed(behind_attention_, branch));
    const at::Tensor mixed = hidden + branch;
    const at::Tensor read = !has_parallel_branches_  ? passed(before_mlp_, mixed)
                            : before_mlp_ == nullptr ? attended[0].toTensor()
                                                     : before_mlp_->call(hidden);
    const c10::IValue mlp = mlp_->call(Inputs{read});
    const at::Tensor& network = mlp.isTensor() ? mlp.toTensor() : tree::sequence_items(mlp)[0].toTensor();
    at::Tensor output = mixed + passed(mlp_dropout_, passed(behind_mlp_, network));
    if (!mlp.isTensor()) return tree::new_list({std::move(output), cached, tree::sequence_items(mlp)[1]});
    if (cached.isNone()) return output;
    return tree::new_list({std::move(output), cached});
  }

 private:
  static at::Tensor passed(const ModulePtr& module, const at::Tensor& tensor) {
    return module == nullptr ? tensor : module->call(tensor);
  }

  bool has_parallel_branches_;
  ModulePtr attention_, mlp_;
  ModulePtr before_attention_, behind_attention_, before_mlp_, behind_mlp_;  // null where there is none
  ModulePtr attention_dropout_, mlp_dropout_;                                // null where there is none
};

}  // namespace

ModulePtr decoder_norm(int64_t size, const DecoderConfig& config) {
  if (config.norm != NormKind::kLayer) return std::make_shared<DecoderNorm>(size, config);
  auto norm = std::make_shared<LayerNorm>(size, config.norm_eps);
  if (config.dtype != at::kFloat) norm->to(config.dtype, std::nullopt);
  return norm;
}

ModulePtr decoder_linear(int64_t in_features, int64_t out_features, bool bias, const DecoderConfig& config) {
  at::Tensor weight = normal_weight(out_features, in_features, config.initializer_range, config.dtype);
  return std::make_shared<Linear>(std::move(weight),
                                  bias ? constant_parameter(0, {out_features}, config.dtype) : at::Tensor());
}

ModulePtr decoder_layer(const DecoderConfig& config, int64_t layer) {
  return std::make_shared<DecoderLayer>(config, layer);
}

}  // namespace accel::nn
