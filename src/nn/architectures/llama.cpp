// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/llama.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/decoder_config.hpp"
#include "nn/architectures/decoder_layer.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/rotary_embedding.hpp"
#include "nn/architectures/router_loss.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// The rotary tables of a stage's last call: its other layers, and mostly the next micro-batch, need the same.
class KeptRotation {
 public:
  template <typename Compute>
  c10::IValue tables(const DecoderStream& stream, const Compute& compute) {
    if (stream.positions.defined()) return compute(stream);
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

class DecoderModel final : public Module, public PositionLimit {
 public:
  explicit DecoderModel(const DecoderConfig& config)
      : Module(config.prefix + "Model"),
        windows_(config.windows),
        hidden_size_(config.hidden_size),
        max_positions_(config.rotary.max_positions),
        scales_embeddings_(config.scales_embeddings),
        experts_(config.experts),
        names_(config.names) {
    const auto table = std::make_shared<Embedding>(
        normal_weight(config.vocab_size, config.hidden_size, config.initializer_range, config.dtype));
    table->set_padding_row(config.padding_row);
    add_child(names_.embedding, embed_tokens_ = table);
    if (config.dropouts.embedding > 0)
      add_child("embed_dropout", dropout_ = std::make_shared<Dropout>(config.dropouts.embedding));
    const ModulePtr layers = std::make_shared<Module>("ModuleList");
    for (int64_t layer = 0; layer < config.num_layers; layer++) {
      DecoderConfig own = config;
      own.attention.window = windows_[static_cast<size_t>(layer)];
      layers->add_child(std::to_string(layer), layers_.emplace_back(decoder_layer(own, layer)));
    }
    add_child("layers", layers);
    add_child(names_.final_norm, norm_ = decoder_norm(config.hidden_size, config));
    const std::string rotary_kind = config.prefix + "RotaryEmbedding";
    add_child("rotary_emb", rotary_emb_ = std::make_shared<RotaryEmbedding>(rotary_kind, config.rotary));
    if (config.local_rotary)
      add_child("rotary_emb_local",
                local_rotary_ = std::make_shared<RotaryEmbedding>(rotary_kind, *config.local_rotary));
  }
  std::vector<std::string> input_names() const override {
    return {"input_ids", "past_key_values", "attention_mask", "position_ids"};
  }
  int64_t max_positions() const override { return max_positions_; }

  // With a cache, a stage takes and gives the keys and values of its own layers, in the place of those of all.
  ModuleChain chain() override {
    std::vector<std::string> first{names_.embedding};
    if (dropout_ != nullptr) first.push_back("embed_dropout");
    ModuleChain chain{{"embed", first,
                       [this](const c10::IValue& input) { return embed(tree::sequence_items(input).vec()).value(); }}};
    const auto kept = std::make_shared<KeptRotation>(), kept_local = std::make_shared<KeptRotation>();
    for (size_t layer = 0; layer < layers_.size(); layer++) {
      const std::string name = text("layers.", layer);
      const ModulePtr& rotary = rotary_of(layer);
      chain.push_back(
          {name,
           {name, rotary == rotary_emb_ ? "rotary_emb" : "rotary_emb_local"},
           [this, layer, rotary, kept = rotary == rotary_emb_ ? kept : kept_local](const c10::IValue& input) {
             DecoderStream stream = DecoderStream::of(input);
             const c10::IValue tables = kept->tables(stream, [&](const auto& of) { return rotation(*rotary, of); });
             stream.run_layer(*layers_[layer], {tables}, mask_of(stream, layer));
             return stream.value();
           }});
    }
    chain.push_back({"head", {names_.final_norm}, [this](const c10::IValue& input) {
                       return output_of(DecoderStream::of(input));
                     }});
    return chain;
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    require_layers(past_input(inputs, 1, kind()), layers_.size());
    DecoderStream stream = embed(inputs);
    const c10::IValue tables = rotation(*rotary_emb_, stream);
    const c10::IValue local = local_rotary_ == nullptr ? tables : rotation(*local_rotary_, stream);
    std::map<int64_t, c10::IValue> masks;
    for (size_t layer = 0; layer < layers_.size(); layer++) {
      const auto [mask, is_new] = masks.try_emplace(windows_[layer]);
      if (is_new) mask->second = mask_of(stream, layer);
      stream.run_layer(*layers_[layer], {rotary_of(layer) == rotary_emb_ ? tables : local}, mask->second);
    }
    return output_of(std::move(stream));
  }

 private:
  DecoderStream embed(const Inputs& inputs) {
    const at::Tensor& tokens = tensor_input(inputs, 0, kind());
    require(tokens.dim() == 2 && tokens.size(1) > 0, Status::kShapeMismatch, kind(), " was called with the shape ",
            tokens.sizes(), "; expected token ids [batch, length]");
    DecoderStream stream = DecoderStream::behind(past_input(inputs, 1, kind()), tokens);
    const auto given = [&](size_t place) { return place < inputs.size() ? inputs[place] : c10::IValue(); };
    stream.take_padding(given(2), given(3), tokens.size(0));
    stream.hidden = embed_tokens_->call(tokens);
    // transformers rounds the factor to the dtype of the states.
    if (scales_embeddings_)
      stream.hidden =
          stream.hidden * at::full({}, std::sqrt(static_cast<double>(hidden_size_)), stream.hidden.options());
    if (dropout_ != nullptr) stream.hidden = dropout_->call(stream.hidden);
    return stream;
  }

  const ModulePtr& rotary_of(size_t layer) const {
    return local_rotary_ != nullptr && windows_[layer] > 0 ? local_rotary_ : rotary_emb_;
  }

  static c10::IValue rotation(Module& rotary, const DecoderStream& stream) {
    return rotary.call(
        Inputs{stream.hidden, stream.positions.defined()
                                  ? stream.positions
                                  : sequence_positions(stream.begin, stream.length, stream.hidden.device())});
  }

  c10::IValue mask_of(const DecoderStream& stream, size_t layer) const {
    const at::Tensor mask = stream.mask(windows_[layer]);
    return mask.defined() ? c10::IValue(mask) : c10::IValue();
  }

  c10::IValue output_of(DecoderStream stream) {
    at::Tensor loss;
    if (!stream.router_scores.empty()) {
      const int64_t tokens = stream.hidden.size(0) * stream.length;
      require(stream.router_scores[0].size(0) == tokens, Status::kUnsupported,
              "output_router_logits is true, and ranks share the sequences; expected false, or neither "
              "context_parallel_size nor sequence_parallel");
      loss = router_loss(stream.router_scores, experts_.per_token, stream.tokens_mask) * experts_.router_loss_factor;
    }
    return stream.output(norm_->call(stream.hidden), loss);
  }

  std::vector<int64_t> windows_;
  int64_t hidden_size_, max_positions_;
  bool scales_embeddings_;
  DecoderExperts experts_;
  DecoderNames names_;
  ModulePtr dropout_;  // null: there is none
  ModulePtr embed_tokens_, norm_, rotary_emb_, local_rotary_;
  std::vector<ModulePtr> layers_;
};

class DecoderForCausalLm final : public Module, public RenamedChildren {
 public:
  explicit DecoderForCausalLm(const DecoderConfig& config)
      : Module(config.prefix + "ForCausalLM"),
        base_(config.names.base),
        hub_head_(config.names.hub_head),
        logit_cap_(config.logit_cap) {
    add_child(base_, model_ = std::make_shared<DecoderModel>(config));
    at::Tensor weight = config.ties_embeddings ? nn::find_tensor(*model_, text(config.names.embedding, ".weight"))
                                               : normal_weight(config.vocab_size, config.hidden_size,
                                                               config.initializer_range, config.dtype);
    add_child("lm_head",
              lm_head_ = std::make_shared<Linear>(
                  std::move(weight),
                  config.biases.head ? constant_parameter(0, {config.vocab_size}, config.dtype) : at::Tensor()));
  }
  std::vector<std::string> input_names() const override { return model_->input_names(); }

  std::vector<std::pair<std::string, std::string>> hub_children() const override {
    if (hub_head_ == "lm_head") return {};
    return {{"lm_head", hub_head_}};
  }

  ModuleChain chain() override {
    return chain_with_head(model_->chain(), base_, "lm_head",
                           [this](const c10::IValue& output) { return scores_of(output); });
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return scores_of(model_->call(inputs)); }

 private:
  c10::IValue scores_of(const c10::IValue& output) {
    return with_scores(output, [this](const at::Tensor& states) { return capped(lm_head_->call(states)); });
  }

  at::Tensor capped(const at::Tensor& scores) const {
    return logit_cap_ == 0 ? scores : (scores / logit_cap_).tanh() * logit_cap_;
  }

  std::string base_, hub_head_;
  double logit_cap_;
  ModulePtr model_, lm_head_;
};

}  // namespace

ModulePtr build_llama(const Json& json) { return std::make_shared<DecoderForCausalLm>(read_decoder_config(json)); }

}  // namespace accel::nn
