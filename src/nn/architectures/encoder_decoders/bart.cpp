// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/encoder_decoders/bart.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/encoder_decoders/encoder_decoder.hpp"
#include "nn/architectures/encoder_decoders/fairseq_side.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/split/split_sequence.hpp"

namespace accel::nn {
namespace {

struct BartFamily {
  FairseqDefaults defaults;
  bool norms_after;
};
constexpr BartFamily kBart = {{"Bart", 1024, 16, 4096, 0.1}, true};
constexpr BartFamily kMBart = {{"MBart", 1024, 16, 4096, 0.1}, false};

// The table of positions has rows in front that no position has: fairseq counted from its padding token.
constexpr int64_t kUnusedRows = 2;

struct BartConfig {
  int64_t vocab_size, max_positions;
  int64_t padding;  // -1: none
  double scale;     // of the vectors of tokens
};

BartConfig read_bart_config(const Json& json, int64_t model_size) {
  BartConfig config{};
  config.vocab_size = size_member(json, "vocab_size", 50265);
  config.max_positions = size_member(json, "max_position_embeddings", 1024);
  config.padding = says_none(json, "pad_token_id") ? -1 : json_integer(json, "pad_token_id", 1);
  require(config.padding >= -1 && config.padding < config.vocab_size, Status::kInvalidArgument, "pad_token_id is ",
          config.padding, "; expected a token, from 0 to ", config.vocab_size - 1);
  config.scale = json_flag(json, "scale_embedding", false) ? std::sqrt(static_cast<double>(model_size)) : 1.0;
  require(json_flag(json, "tie_word_embeddings", true), Status::kUnsupported,
          "tie_word_embeddings is false; only true is supported");
  // Keys of old files, which transformers does not read.
  for (const char* const key : {"normalize_before", "add_final_layer_norm", "static_position_embeddings"})
    require(!json_flag(json, key, false) || json_text(json, "model_type", "") != "bart", Status::kUnsupported, key,
            " is true; only false is supported");
  return config;
}

std::shared_ptr<Embedding> token_table(const at::Tensor& table, const BartConfig& config) {
  auto tokens = std::make_shared<Embedding>(table);
  if (config.padding >= 0) tokens->set_padding_row(config.padding);
  return tokens;
}

class BartStack final : public SequenceStack {
 public:
  BartStack(const BartFamily& family, const Json& json, const BartConfig& config, bool is_decoder,
            const at::Tensor& table)
      : SequenceStack(std::string(family.defaults.prefix) + (is_decoder ? "Decoder" : "Encoder"), is_decoder),
        config_(config) {
    SequenceConfig side = read_fairseq_side(json, family.defaults, is_decoder);
    side.has_key_bias = true;
    side.norms_after = family.norms_after;
    add_child("embed_tokens", tokens_ = token_table(table, config));
    add_child("embed_positions", positions_ = std::make_shared<Embedding>(normal_weight(
                                     config.max_positions + kUnusedRows, side.model_size, side.deviation, side.dtype)));
    add_layers("layers", layers_member(json, is_decoder ? "decoder_layers" : "encoder_layers", 12), side,
               fairseq_layer_names(family.defaults.prefix, is_decoder));
    add_child("layernorm_embedding", norm_ = sequence_norm(side));
    if (!family.norms_after) add_last_norm("layer_norm", side);
  }

 protected:
  at::Tensor embed(const at::Tensor& input, int64_t begin) override {
    require(input.dim() == 2 && input.size(1) > 0, Status::kShapeMismatch, kind(), " was called with the shape ",
            input.sizes(), "; expected token ids [batch, length]");
    require(begin + input.size(1) <= config_.max_positions, Status::kShapeMismatch, kind(), " was called with ",
            begin + input.size(1), " positions; expected at most max_position_embeddings = ", config_.max_positions);
    at::Tensor tokens = tokens_->call(input);
    if (config_.scale != 1) tokens = tokens * config_.scale;
    return norm_->call(tokens +
                       positions_->call(sequence_positions(begin + kUnusedRows, input.size(1), input.device())));
  }

 private:
  BartConfig config_;
  ModulePtr tokens_, positions_, norm_;
};

ModulePtr build_family(const Json& json, const BartFamily& family) {
  refuse_quantization(json);
  const std::string kind = std::string(family.defaults.prefix) + "ForConditionalGeneration";
  require_model_class(json, kind.c_str());
  const SequenceConfig side = read_fairseq_side(json, family.defaults, /*is_decoder=*/true);
  const BartConfig config = read_bart_config(json, side.model_size);
  const at::Tensor table = normal_weight(config.vocab_size, side.model_size, side.deviation, side.dtype);
  auto model = std::make_shared<EncoderDecoder>(kind, "input_ids", /*takes_mask=*/true, 1);
  const auto encoder = std::make_shared<BartStack>(family, json, config, false, table);
  const auto decoder = std::make_shared<BartStack>(family, json, config, true, table);
  const auto head = std::make_shared<Linear>(table, at::Tensor());
  model->add_logits_bias(config.vocab_size, side.dtype);
  add_at(*model, "model.shared", token_table(table, config));
  add_at(*model, "model.encoder", encoder);
  add_at(*model, "model.decoder", decoder);
  model->add_child("lm_head", head);
  model->set_parts(encoder, decoder, head);
  return model;
}

}  // namespace

ModulePtr build_bart(const Json& config) { return build_family(config, kBart); }

ModulePtr build_mbart(const Json& config) { return build_family(config, kMBart); }

}  // namespace accel::nn
