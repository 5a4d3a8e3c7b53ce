// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/encoder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
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

// `padding` is a row that has no gradient.
ModulePtr table(int64_t rows, const EncoderConfig& config, std::optional<int64_t> padding = std::nullopt) {
  at::Tensor weight = normal_weight(rows, config.hidden_size, config.initializer_range, config.dtype);
  if (!padding) return std::make_shared<Embedding>(std::move(weight));
  auto table = std::make_shared<Embedding>(std::move(weight));
  table->set_padding_row(*padding);
  return table;
}

// Normalization comes behind each of the two residual additions (Vaswani et al., "Attention Is All You Need", 2017).
class EncoderLayer final : public Module, public AttentionHeads {
 public:
  EncoderLayer(const EncoderConfig& config, const EncoderNames& names)
      : Module("EncoderLayer"),
        AttentionHeads(config.num_heads, config.num_heads, config.hidden_size / config.num_heads),
        attention_dropout_(config.attention_dropout) {
    const int64_t hidden = config.hidden_size;
    add_at(*this, names.query, query_ = encoder_linear(hidden, hidden, config));
    add_at(*this, names.key, key_ = encoder_linear(hidden, hidden, config));
    add_at(*this, names.value, value_ = encoder_linear(hidden, hidden, config));
    add_at(*this, names.attention_output, attention_output_ = encoder_linear(hidden, hidden, config));
    add_at(*this, names.attention_norm, attention_norm_ = encoder_norm(hidden, config));
    add_at(*this, names.up, up_ = encoder_linear(hidden, config.intermediate_size, config));
    add_at(*this, names.down, down_ = encoder_linear(config.intermediate_size, hidden, config));
    add_at(*this, names.output_norm, output_norm_ = encoder_norm(hidden, config));
    add_child("activation", activation_ = std::make_shared<Activation>(config.activation));
    add_child("dropout", dropout_ = std::make_shared<Dropout>(config.hidden_dropout));
  }
  std::vector<std::string> input_names() const override { return {"hidden_states", "attention_mask"}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& hidden = tensor_input(inputs, 0, kind());
    const at::Tensor mask = inputs.size() > 1 && inputs[1].isTensor() ? inputs[1].toTensor() : at::Tensor();
    const at::Tensor query = view_heads(query_->call(hidden), head_size()),
                     key = view_heads(key_->call(hidden), head_size()),
                     value = view_heads(value_->call(hidden), head_size());
    const double dropout = is_training() ? attention_dropout_ : 0.0;
    at::Tensor mixed;
    {
      const auto branch = branch_of_rank(dropout, hidden.device());
      mixed = at::scaled_dot_product_attention(
          query, key, value, mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, dropout);
    }
    const at::Tensor attended =
        attention_norm_->call(dropout_->call(attention_output_->call(join_heads(mixed))) + hidden);
    return output_norm_->call(dropout_->call(down_->call(activation_->call(up_->call(attended)))) + attended);
  }

 private:
  double attention_dropout_;
  ModulePtr query_, key_, value_, attention_output_, attention_norm_, up_, down_, output_norm_, activation_, dropout_;
};

at::Tensor optional_tensor(const Inputs& inputs, size_t place, const at::Tensor& tokens, const std::string& kind) {
  if (place >= inputs.size() || inputs[place].isNone()) return {};
  const at::Tensor& given = tensor_input(inputs, place, kind);
  require(given.sizes() == tokens.sizes(), Status::kShapeMismatch, "input ", place, " of a module of kind '", kind,
          "' has the shape ", given.sizes(), "; expected that of the token ids, ", tokens.sizes());
  return given;
}

}  // namespace

void add_at(Module& module, const std::string& path, const ModulePtr& child) {
  Module* owner = &module;
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; begin = dot + 1, dot = path.find('.', begin)) {
    const std::string name = path.substr(begin, dot - begin);
    ModulePtr next;
    for (const auto& [existing, inner] : owner->children())
      if (existing == name) next = inner;
    if (next == nullptr) owner->add_child(name, next = std::make_shared<Module>("ModuleDict"));
    owner = next.get();
  }
  owner->add_child(path.substr(begin), child);
}

ModulePtr encoder_linear(int64_t in_features, int64_t out_features, const EncoderConfig& config) {
  return std::make_shared<Linear>(normal_weight(out_features, in_features, config.initializer_range, config.dtype),
                                  constant_parameter(0, {out_features}, config.dtype));
}

ModulePtr encoder_norm(int64_t size, const EncoderConfig& config) {
  auto norm = std::make_shared<LayerNorm>(size, config.layer_norm_eps);
  if (config.dtype != at::kFloat) norm->to(config.dtype, std::nullopt);
  return norm;
}

Encoder::Encoder(std::string kind, const EncoderConfig& config, const EncoderNames& names)
    : Module(std::move(kind)), config_(config), layers_path_(names.layers) {
  add_at(*this, "embeddings.word_embeddings", words_ = table(config.vocab_size, config, config.pad_token_id));
  // RoBERTa's state dict has the positions last.
  if (config.counts_from_padding)
    positions_ = table(config.max_positions, config, config.pad_token_id);
  else
    add_at(*this, "embeddings.position_embeddings", positions_ = table(config.max_positions, config));
  if (config.type_vocab_size > 0)
    add_at(*this, "embeddings.token_type_embeddings", types_ = table(config.type_vocab_size, config));
  add_at(*this, "embeddings.LayerNorm", norm_ = encoder_norm(config.hidden_size, config));
  add_at(*this, "embeddings.dropout", dropout_ = std::make_shared<Dropout>(config.hidden_dropout));
  if (config.counts_from_padding) add_at(*this, "embeddings.position_embeddings", positions_);
  const auto layers = std::make_shared<Module>("ModuleList");
  for (int64_t layer = 0; layer < config.num_layers; layer++)
    layers->add_child(std::to_string(layer), layers_.emplace_back(std::make_shared<EncoderLayer>(config, names)));
  add_at(*this, layers_path_, layers);
}

std::vector<std::string> Encoder::input_names() const {
  return {"input_ids", "attention_mask", "token_type_ids", "position_ids"};
}

at::Tensor Encoder::positions(const at::Tensor& tokens, const Inputs& inputs) const {
  if (at::Tensor given = optional_tensor(inputs, 3, tokens, kind()); given.defined()) return given;
  if (!config_.counts_from_padding) return sequence_positions(0, tokens.size(1), tokens.device());
  const at::Tensor is_token = tokens.ne(config_.pad_token_id).to(at::kLong);
  return is_token.cumsum(1) * is_token + config_.pad_token_id;
}

Encoder::Embedded Encoder::embed(const Inputs& inputs) {
  const at::Tensor& tokens = tensor_input(inputs, 0, kind());
  require(tokens.dim() == 2 && tokens.size(1) > 0, Status::kShapeMismatch, kind(), " was called with the shape ",
          tokens.sizes(), "; expected token ids [batch, length]");
  const int64_t reserved = config_.counts_from_padding ? config_.pad_token_id + 1 : 0;
  require(tokens.size(1) + reserved <= config_.max_positions, Status::kShapeMismatch, kind(), " was called with ",
          tokens.size(1), " positions; expected at most ", config_.max_positions - reserved);
  Embedded embedded{words_->call(tokens) + positions_->call(positions(tokens, inputs)), {}};
  const at::Tensor types = optional_tensor(inputs, 2, tokens, kind());
  require(types_ != nullptr || !types.defined(), Status::kInvalidArgument, kind(),
          " was called with token_type_ids; expected none, because its tokens have no types");
  if (types_ != nullptr)
    embedded.hidden = embedded.hidden + types_->call(types.defined() ? types : at::zeros_like(tokens));
  embedded.hidden = dropout_->call(norm_->call(embedded.hidden));
  if (const at::Tensor mask = optional_tensor(inputs, 1, tokens, kind()); mask.defined())
    embedded.mask = mask.to(at::kBool).unsqueeze(1).unsqueeze(2);
  return embedded;
}

at::Tensor Encoder::encode(const Inputs& inputs) {
  Embedded state = embed(inputs);
  for (const ModulePtr& layer : layers_) {
    Inputs passed{state.hidden};
    if (state.mask.defined()) passed.emplace_back(state.mask);
    state.hidden = layer->call(passed).toTensor();
  }
  return state.hidden;
}

c10::IValue Encoder::forward(const Inputs& inputs) { return encode(inputs); }

// Parts pass [hidden], or [hidden, mask].
ModuleChain Encoder::chain() {
  ModuleChain chain{{"embed", {"embeddings"}, [this](const c10::IValue& input) {
                       Embedded state = embed(tree::sequence_items(input).vec());
                       std::vector<c10::IValue> passed{std::move(state.hidden)};
                       if (state.mask.defined()) passed.emplace_back(std::move(state.mask));
                       return tree::new_list(std::move(passed));
                     }}};
  for (const ModulePtr& layer : layers_) {
    const std::string name = text(layers_path_, ".", chain.size() - 1);
    const bool is_last = chain.size() == layers_.size();
    chain.push_back({name, {name}, [layer, is_last](const c10::IValue& input) -> c10::IValue {
                       std::vector<c10::IValue> passed = tree::sequence_items(input).vec();
                       passed[0] = layer->call(passed);
                       if (is_last) return passed[0];
                       return tree::new_list(std::move(passed));
                     }});
  }
  return chain;
}

}  // namespace accel::nn
