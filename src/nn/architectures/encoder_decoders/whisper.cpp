// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/encoder_decoders/whisper.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/encoder_decoders/encoder_decoder.hpp"
#include "nn/architectures/encoder_decoders/fairseq_side.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"

namespace accel::nn {
namespace {

constexpr FairseqDefaults kWhisperDefaults = {"Whisper", 384, 6, 1536, 0.0};

// Sines and cosines [positions, size] of frequencies from 1 to 1 / 10000.
at::Tensor sinusoids(int64_t positions, int64_t size) {
  const int64_t half = size / 2;
  const at::Tensor steps = at::arange(half, at::kFloat);
  const at::Tensor frequencies = (steps * (-std::log(10000.0) / static_cast<double>(half - 1))).exp();
  const at::Tensor angles = at::arange(positions, at::kFloat).unsqueeze(1) * frequencies;
  return at::cat({angles.sin(), angles.cos()}, 1);
}

class WhisperEncoder final : public SequenceStack {
 public:
  WhisperEncoder(const Json& json, const SequenceConfig& config)
      : SequenceStack("WhisperEncoder", false),
        mels_(size_member(json, "num_mel_bins", 80)),
        positions_(size_member(json, "max_source_positions", 1500)) {
    add_child("conv1",
              conv1_ = std::make_shared<SequenceConvolution>(Conv2dShape{mels_, config.model_size, 3, 1, 1}, true));
    add_child("conv2", conv2_ = std::make_shared<SequenceConvolution>(
                           Conv2dShape{config.model_size, config.model_size, 3, 2, 1}, true));
    // Files have the table, which is not trained. One without memory gets its values from them alone.
    const at::Tensor table = at::empty({positions_, config.model_size}, new_parameter_options());
    require(config.model_size % 2 == 0 && config.model_size >= 4, Status::kInvalidArgument, "d_model is ",
            config.model_size, "; expected an even number from 4 on");
    if (!table.is_meta()) table.copy_(sinusoids(positions_, config.model_size));
    table_ = std::make_shared<Embedding>(table);
    find_tensor(*table_, "weight").set_requires_grad(false);
    add_child("embed_positions", table_);
    add_layers("layers", layers_member(json, "encoder_layers", 4), config, fairseq_layer_names("Whisper", false));
    add_last_norm("layer_norm", config);
    add_child("gelu", gelu_ = std::make_shared<Activation>("gelu"));
  }
  std::vector<std::string> input_names() const override { return {"input_features", "attention_mask"}; }

 protected:
  at::Tensor embed(const at::Tensor& input, int64_t) override {
    require(input.dim() == 3 && input.size(1) == mels_ && input.size(2) == 2 * positions_, Status::kShapeMismatch,
            kind(), " was called with the shape ", input.sizes(), "; expected input_features [batch, ", mels_, ", ",
            2 * positions_, "]: pad or cut the spectra");
    const at::Tensor hidden = gelu_->call(conv2_->call(gelu_->call(conv1_->call(input)))).transpose(1, 2);
    return hidden + table_->call(sequence_positions(0, positions_, input.device()));
  }

 private:
  int64_t mels_, positions_;
  ModulePtr table_, conv1_, conv2_, gelu_;
};

class WhisperDecoder final : public SequenceStack {
 public:
  WhisperDecoder(const Json& json, const SequenceConfig& config)
      : SequenceStack("WhisperDecoder", true), limit_(size_member(json, "max_target_positions", 448)) {
    const auto tokens = std::make_shared<Embedding>(
        normal_weight(size_member(json, "vocab_size", 51865), config.model_size, config.deviation, config.dtype));
    if (!says_none(json, "pad_token_id")) tokens->set_padding_row(json_integer(json, "pad_token_id", 50256));
    add_child("embed_tokens", tokens_ = tokens);
    add_child("embed_positions", positions_ = std::make_shared<Embedding>(
                                     normal_weight(limit_, config.model_size, config.deviation, config.dtype)));
    add_layers("layers", layers_member(json, "decoder_layers", 4), config, fairseq_layer_names("Whisper", true));
    add_last_norm("layer_norm", config);
  }

 protected:
  at::Tensor embed(const at::Tensor& input, int64_t begin) override {
    require(begin + input.size(1) <= limit_, Status::kShapeMismatch, kind(), " was called with ", begin + input.size(1),
            " positions; expected at most max_target_positions = ", limit_);
    return tokens_->call(input) + positions_->call(sequence_positions(begin, input.size(1), input.device()));
  }

 private:
  int64_t limit_;
  ModulePtr tokens_, positions_;
};

}  // namespace

ModulePtr build_whisper(const Json& json) {
  refuse_quantization(json);
  require_model_class(json, "WhisperForConditionalGeneration");
  require(!json_flag(json, "apply_spec_augment", false), Status::kUnsupported,
          "apply_spec_augment is true; only false is supported");
  const SequenceConfig left = read_fairseq_side(json, kWhisperDefaults, false),
                       right = read_fairseq_side(json, kWhisperDefaults, true);
  auto model =
      std::make_shared<EncoderDecoder>("WhisperForConditionalGeneration", "input_features", /*takes_mask=*/false, 1);
  const auto encoder = std::make_shared<WhisperEncoder>(json, left);
  const auto decoder = std::make_shared<WhisperDecoder>(json, right);
  const at::Tensor table = find_tensor(*decoder, "embed_tokens.weight");
  const auto head =
      std::make_shared<Linear>(json_flag(json, "tie_word_embeddings", true)
                                   ? table
                                   : normal_weight(table.size(0), table.size(1), right.deviation, right.dtype),
                               at::Tensor());
  add_at(*model, "model.encoder", encoder);
  add_at(*model, "model.decoder", decoder);
  model->add_child("proj_out", head);
  model->set_parts(encoder, decoder, head);
  if (left.dtype != at::kFloat) model->to(left.dtype, std::nullopt);
  return model;
}

}  // namespace accel::nn
