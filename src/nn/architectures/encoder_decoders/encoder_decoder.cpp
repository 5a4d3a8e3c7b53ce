// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/encoder_decoders/encoder_decoder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/dropout.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

c10::IValue input_or_none(const Inputs& inputs, size_t place) {
  return place < inputs.size() ? inputs[place] : c10::IValue();
}

// [batch, 1, 1, length], true: is seen; undefined: all are.
at::Tensor mask_of_encoder(const c10::IValue& given, const at::Tensor& states) {
  if (given.isNone()) return {};
  require(given.isTensor() && given.toTensor().dim() == 2 && given.toTensor().size(0) == states.size(0) &&
              (states.dim() < 2 || given.toTensor().size(1) == states.size(1)),
          Status::kShapeMismatch, "attention_mask is ",
          given.isTensor() ? text("of shape ", given.toTensor().sizes()) : text("a ", tree::kind_name(given)),
          "; expected the batch and the length of the encoder's input");
  return given.toTensor().to(at::kBool).unsqueeze(1).unsqueeze(1);
}

c10::IValue value_of(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

}  // namespace

std::vector<std::string> SequenceStack::input_names() const {
  if (!is_decoder_) return {"input_ids", "attention_mask"};
  return {"input_ids", "attention_mask", "encoder_hidden_states", "encoder_attention_mask", "past_key_values"};
}

void SequenceStack::add_layers(const std::string& list, int64_t layers, const SequenceConfig& config,
                               const SequenceLayerNames& names) {
  const auto all = std::make_shared<Module>("ModuleList");
  for (int64_t layer = 0; layer < layers; layer++)
    all->add_child(std::to_string(layer),
                   layers_.emplace_back(sequence_layer(config, names, is_decoder_, config.buckets > 0 && layer == 0)));
  add_child(list, all);
  add_child("dropout", dropout_ = std::make_shared<Dropout>(config.dropout));
}

void SequenceStack::add_last_norm(const std::string& name, const SequenceConfig& config) {
  add_child(name, norm_ = sequence_norm(config));
}

c10::IValue SequenceStack::forward(const Inputs& inputs) {
  const at::Tensor& input = tensor_input(inputs, 0, kind());
  const c10::IValue* const past = is_decoder_ ? past_input(inputs, 4, kind()) : nullptr;
  require_layers(past, layers_.size());
  require(!is_decoder_ || (input.dim() == 2 && input.size(1) > 0), Status::kShapeMismatch, kind(),
          " was called with the shape ", input.sizes(), "; expected token ids [batch, length]");
  const bool is_first = past == nullptr || tree::sequence_items(*past).empty();
  int64_t begin = 0;
  if (!is_first) {
    const auto first = tree::sequence_items(tree::sequence_items(*past)[0]);
    require(first.size() == 4 && first[0].isTensor() && first[0].toTensor().dim() == 4, Status::kTypeMismatch,
            "past_key_values of a layer has ", first.size(), " tensors; expected 4, as an earlier call returned them");
    begin = first[0].toTensor().size(2);
  }
  at::Tensor hidden = dropout_->call(embed(input, begin));
  const int64_t length = hidden.size(1), total = begin + length;
  const at::Tensor relative = buckets(length, total, hidden.device());
  at::Tensor mask;
  c10::IValue states, states_mask;
  if (is_decoder_) {
    DecoderStream stream{hidden, begin, length, std::nullopt, {}, {}, {}, {}};
    stream.take_padding(input_or_none(inputs, 1), {}, hidden.size(0));
    // Scores of relative positions are a mask, so that no rule adds that of the order of tokens.
    if (relative.defined() && !stream.tokens_mask.defined() && length > 1)
      stream.tokens_mask = at::ones({1, total}, hidden.options().dtype(at::kBool));
    mask = stream.mask(0);
    states = input_or_none(inputs, 2);
    states_mask = input_or_none(inputs, 3);
    if (states_mask.isTensor())
      states_mask = states.isTensor() ? mask_of_encoder(states_mask, states.toTensor())
                                      : states_mask.toTensor().to(at::kBool).unsqueeze(1).unsqueeze(1);
  } else {
    mask = mask_of_encoder(input_or_none(inputs, 1), hidden);
  }
  c10::IValue passed_mask = value_of(mask), passed_buckets = value_of(relative);
  std::vector<c10::IValue> cache;
  for (size_t layer = 0; layer < layers_.size(); layer++) {
    c10::IValue earlier;
    if (past != nullptr) earlier = is_first ? tree::new_list() : tree::sequence_items(*past)[layer];
    const c10::IValue output =
        layers_[layer]->call(Inputs{hidden, passed_mask, passed_buckets, states, states_mask, earlier});
    const auto results = tree::sequence_items(output);
    hidden = results[0].toTensor();
    if (layer == 0) passed_mask = results[1];
    passed_buckets = {};
    if (past != nullptr) cache.push_back(results[2]);
  }
  if (norm_ != nullptr) hidden = norm_->call(hidden);
  if (drops_output_) hidden = dropout_->call(hidden);
  if (past == nullptr) return hidden;
  return tree::new_list({std::move(hidden), tree::new_list(std::move(cache))});
}

void EncoderDecoder::set_parts(ModulePtr encoder, ModulePtr decoder, ModulePtr head) {
  encoder_ = std::move(encoder);
  decoder_ = std::move(decoder);
  head_ = std::move(head);
}

void EncoderDecoder::add_logits_bias(int64_t vocabulary, at::ScalarType dtype) {
  bias_ = add_buffer("final_logits_bias", at::zeros({1, vocabulary}, new_parameter_options().dtype(dtype)));
}

std::vector<std::string> EncoderDecoder::input_names() const {
  return {input_name_, "attention_mask", "decoder_input_ids", "decoder_attention_mask", "past_key_values"};
}

c10::IValue EncoderDecoder::forward(const Inputs& inputs) {
  const c10::IValue mask = input_or_none(inputs, 1);
  require(takes_mask_ || mask.isNone(), Status::kUnsupported, "attention_mask is given, and ", kind(),
          " attends to its whole input; expected none");
  const c10::IValue* const past = past_input(inputs, 4, kind());
  c10::IValue states;
  if (past == nullptr || tree::sequence_items(*past).empty()) states = encoder_->call(Inputs{inputs[0], mask});
  const c10::IValue output = decoder_->call(
      Inputs{tensor_input(inputs, 2, kind()), input_or_none(inputs, 3), states, mask, input_or_none(inputs, 4)});
  const auto scores = [&](const at::Tensor& hidden) {
    const at::Tensor products = head_->call(scale_ == 1 ? hidden : hidden * scale_);
    return bias_ ? products + buffer(*bias_) : products;
  };
  if (output.isTensor()) return scores(output.toTensor());
  const auto parts = tree::sequence_items(output);
  return tree::new_list({scores(parts[0].toTensor()), parts[1]});
}

}  // namespace accel::nn
