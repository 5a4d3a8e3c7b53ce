// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/sequence_layer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/decoder_layer.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention_heads.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/split_heads.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

c10::IValue some_or_none(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }
at::Tensor tensor_or_nothing(const Inputs& inputs, size_t place) {
  return place < inputs.size() && inputs[place].isTensor() ? inputs[place].toTensor() : at::Tensor();
}

// The scores of relative positions, and the least number where nothing is seen, so that a row of padding has no NaN.
at::Tensor with_mask(const at::Tensor& scores, const at::Tensor& mask) {
  if (!mask.defined()) return scores;
  const double least = scores.scalar_type() == at::kBFloat16
                           ? -3.3895313892515355e38
                           : static_cast<double>(std::numeric_limits<float>::lowest());
  return scores.masked_fill(mask.logical_not(), least);
}

enum class AttendedTo { kAll, kEarlier, kEncoder };

// Inputs: hidden states; the source's states or None; mask; buckets; past: None, or [key, value] or an empty list.
// Gives [output, mask, [key, value]].
class SequenceAttention final : public Module, public AttentionHeads {
 public:
  SequenceAttention(const SequenceConfig& config, const SequenceLayerNames& names, AttendedTo source,
                    bool has_positions)
      : Module(config.prefix + "Attention"),
        AttentionHeads(config.num_heads, config.num_heads, config.head_size),
        source_(source),
        rule_{config.attention_dropout, config.scale} {
    const int64_t width = config.num_heads * config.head_size;
    SequenceConfig queries = config;
    // The scale of scores is in the first weights.
    if (config.scale == 1.0) queries.deviation /= std::sqrt(static_cast<double>(config.head_size));
    query_ = sequence_linear(config.model_size, width, config.has_query_bias, queries);
    key_ = sequence_linear(config.model_size, width, config.has_key_bias, config);
    value_ = sequence_linear(config.model_size, width, config.has_query_bias, config);
    if (!names.has_key_first) add_at(*this, names.query, query_);
    add_at(*this, names.key, key_);
    add_at(*this, names.value, value_);
    if (names.has_key_first) add_at(*this, names.query, query_);
    add_at(*this, names.output, output_ = sequence_linear(width, config.model_size, config.has_bias, config));
    if (!has_positions) return;
    const double deviation = config.deviation / std::sqrt(static_cast<double>(config.model_size));
    positions_ = std::make_shared<Embedding>(normal_weight(config.buckets, config.num_heads, deviation, config.dtype));
    add_child("relative_attention_bias", positions_);
  }
  std::vector<std::string> input_names() const override {
    return {"hidden_states", "key_value_states", "attention_mask", "buckets", "past_key_values"};
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    require(SplitSequence::current() == nullptr, Status::kUnsupported, "a module of kind '", kind(),
            "' was called with sequences that ranks share; expected context_parallel_size 1");
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    const at::Tensor query = view_heads(query_->call(hidden), head_size());
    const c10::IValue* const past = past_input(inputs, 4, kind());
    const bool is_known = source_ == AttendedTo::kEncoder && past != nullptr && !tree::sequence_items(*past).empty();
    at::Tensor key, value;
    if (is_known) {
      key = tree::sequence_items(*past)[0].toTensor();
      value = tree::sequence_items(*past)[1].toTensor();
    } else {
      const at::Tensor& source = source_ == AttendedTo::kEncoder ? tensor_input(inputs, 1, kind()) : hidden;
      key = view_heads(key_->call(source), head_size());
      value = view_heads(value_->call(source), head_size());
      if (past != nullptr && source_ == AttendedTo::kEarlier) put_behind(*past, key, value);
    }
    AttentionRule rule = rule_;
    if (!is_training()) rule.dropout = 0;
    rule.mask = tensor_or_nothing(inputs, 2);
    if (const at::Tensor buckets = tensor_or_nothing(inputs, 3); positions_ != nullptr && buckets.defined())
      rule.mask = with_mask(of_rank(positions_->call(buckets).permute({2, 0, 1}), query.size(1)), rule.mask);
    at::Tensor mixed;
    {
      const auto branch = branch_of_rank(rule.dropout, query.device());
      mixed = source_ == AttendedTo::kEarlier
                  ? attend_causally(query, key, value, rule)
                  : at::scaled_dot_product_attention(
                        query, key, value, rule.mask.defined() ? std::optional<at::Tensor>(rule.mask) : std::nullopt,
                        rule.dropout,
                        /*is_causal=*/false, rule.scale);
    }
    return tree::new_list({output_->call(join_heads(mixed)), some_or_none(rule.mask),
                           past == nullptr ? c10::IValue() : tree::new_list({std::move(key), std::move(value)})});
  }

 private:
  // The scores [heads, length, total] of the heads that this rank has, [1, heads, length, total].
  at::Tensor of_rank(const at::Tensor& scores, int64_t heads_here) const {
    if (heads_here == heads()) return scores.unsqueeze(0);
    require(heads() % heads_here == 0, Status::kUnsupported, "a module of kind '", kind(), "' has ", heads(),
            " heads, of which this rank has ", heads_here, "; expected as many on each rank");
    return scores.narrow(0, split_rank() * heads_here, heads_here).unsqueeze(0);
  }

  AttendedTo source_;
  AttentionRule rule_;
  ModulePtr query_, key_, value_, output_, positions_;
};

class SequenceLayer final : public Module {
 public:
  SequenceLayer(const SequenceConfig& config, const SequenceLayerNames& names, bool is_decoder, bool has_positions)
      : Module(names.kind), norms_after_(config.norms_after) {
    const auto attention = [&](AttendedTo source, bool positions) {
      return std::make_shared<SequenceAttention>(config, names, source, positions);
    };
    add_at(*this, names.self_attention,
           self_attention_ = attention(is_decoder ? AttendedTo::kEarlier : AttendedTo::kAll, has_positions));
    add_at(*this, names.self_norm, self_norm_ = sequence_norm(config));
    if (is_decoder && !names.cross_attention.empty()) {
      add_at(*this, names.cross_attention, cross_attention_ = attention(AttendedTo::kEncoder, false));
      add_at(*this, names.cross_norm, cross_norm_ = sequence_norm(config));
    }
    const auto widening = [&] {
      return sequence_linear(config.model_size, config.inner_size, config.has_bias, config);
    };
    if (!names.network.empty()) add_at(*this, names.network, std::make_shared<Module>(names.network_kind));
    if (config.is_gated) add_at(*this, names.gate, gate_ = widening());
    add_at(*this, names.up, up_ = widening());
    add_at(*this, names.down, down_ = sequence_linear(config.inner_size, config.model_size, config.has_bias, config));
    add_at(*this, names.network_norm, network_norm_ = sequence_norm(config));
    add_child("activation", activation_ = std::make_shared<Activation>(config.activation));
    add_child("activation_dropout", activation_dropout_ = std::make_shared<Dropout>(config.activation_dropout));
    add_child("dropout", dropout_ = std::make_shared<Dropout>(config.dropout));
  }
  std::vector<std::string> input_names() const override {
    return {"hidden_states",  "attention_mask",         "buckets",
            "encoder_states", "encoder_attention_mask", "past_key_values"};
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    at::Tensor hidden = tensor_input(inputs, 0, kind());
    const c10::IValue* const past = past_input(inputs, 5, kind());
    const auto part = [&](size_t begin) -> c10::IValue {
      if (past == nullptr) return {};
      const auto items = tree::sequence_items(*past);
      if (items.empty()) return tree::new_list();
      require(items.size() == 4, Status::kTypeMismatch, "past_key_values of a layer has ", items.size(),
              " tensors; expected 4, as an earlier call returned them");
      return tree::new_list({items[begin], items[begin + 1]});
    };
    const auto given = [&](size_t place) { return place < inputs.size() ? inputs[place] : c10::IValue(); };
    const c10::IValue attended =
        self_attention_->call(Inputs{before(self_norm_, hidden), {}, given(1), given(2), part(0)});
    const auto results = tree::sequence_items(attended);
    hidden = sum(self_norm_, hidden, results[0].toTensor());
    c10::IValue cache;
    if (cross_attention_ != nullptr) {
      const c10::IValue crossed =
          cross_attention_->call(Inputs{before(cross_norm_, hidden), given(3), given(4), {}, part(2)});
      const auto cross_results = tree::sequence_items(crossed);
      hidden = sum(cross_norm_, hidden, cross_results[0].toTensor());
      if (past != nullptr) {
        const auto own = tree::sequence_items(results[2]), other = tree::sequence_items(cross_results[2]);
        cache = tree::new_list({own[0], own[1], other[0], other[1]});
      }
    }
    const at::Tensor normal = before(network_norm_, hidden);
    at::Tensor inner = activation_->call((gate_ == nullptr ? up_ : gate_)->call(normal));
    if (gate_ != nullptr) inner = inner * up_->call(normal);
    hidden = sum(network_norm_, hidden, down_->call(activation_dropout_->call(inner)));
    return tree::new_list({std::move(hidden), results[1], std::move(cache)});
  }

 private:
  // The input of a branch.
  at::Tensor before(const ModulePtr& norm, const at::Tensor& hidden) {
    return norms_after_ ? hidden : norm->call(hidden);
  }
  // The residual sum with what a branch gives.
  at::Tensor sum(const ModulePtr& norm, const at::Tensor& hidden, const at::Tensor& branch) {
    at::Tensor result = hidden + dropout_->call(branch);
    return norms_after_ ? norm->call(result) : result;
  }

  bool norms_after_;
  ModulePtr self_attention_, self_norm_, cross_attention_, cross_norm_;
  ModulePtr gate_, up_, down_, network_norm_, activation_, activation_dropout_, dropout_;
};

}  // namespace

ModulePtr sequence_norm(const SequenceConfig& config) {
  if (config.is_rms) {
    DecoderConfig norm{};
    norm.prefix = config.prefix;
    norm.norm_eps = config.norm_eps;
    norm.dtype = config.dtype;
    return decoder_norm(config.model_size, norm);
  }
  auto norm = std::make_shared<LayerNorm>(config.model_size, config.norm_eps);
  if (config.dtype != at::kFloat) norm->to(config.dtype, std::nullopt);
  return norm;
}

ModulePtr sequence_linear(int64_t in_features, int64_t out_features, bool bias, const SequenceConfig& config) {
  const double deviation =
      config.scales_deviation ? config.deviation / std::sqrt(static_cast<double>(in_features)) : config.deviation;
  return std::make_shared<Linear>(normal_weight(out_features, in_features, deviation, config.dtype),
                                  bias ? constant_parameter(0, {out_features}, config.dtype) : at::Tensor());
}

ModulePtr sequence_layer(const SequenceConfig& config, const SequenceLayerNames& names, bool is_decoder,
                         bool has_positions) {
  return std::make_shared<SequenceLayer>(config, names, is_decoder, has_positions);
}

}  // namespace accel::nn
