// SPDX-License-Identifier: Apache-2.0
// Encoder-decoder: a stack of layers that reads a whole input, and one that adds tokens and sees what the first gives
// (Vaswani et al., "Attention Is All You Need", 2017).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nn/architectures/sequence_layer.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// A side of the model. Inputs of an encoder: the model's input, its mask [batch, length]. Inputs of a decoder: tokens
// [batch, length], their mask [batch, earlier + length], the encoder's states, their mask [batch, length of the
// encoder's input], past_key_values. Gives the states; a decoder with past_key_values [states, past_key_values].
class SequenceStack : public Module {
 public:
  std::vector<std::string> input_names() const override;

 protected:
  SequenceStack(std::string kind, bool is_decoder) : Module(std::move(kind)), is_decoder_(is_decoder) {}

  // The states of the first layer, of tokens from the position `begin` on.
  virtual at::Tensor embed(const at::Tensor& input, int64_t begin) = 0;
  // The buckets of relative positions [length, total], of the last positions; undefined: there are none.
  virtual at::Tensor buckets(int64_t, int64_t, c10::Device) const { return {}; }

  // "<list>.0" and so on.
  void add_layers(const std::string& list, int64_t layers, const SequenceConfig& config,
                  const SequenceLayerNames& names);
  // The normalization behind the layers; without this call there is none.
  void add_last_norm(const std::string& name, const SequenceConfig& config);
  at::Tensor dropped(const at::Tensor& hidden) { return dropout_->call(hidden); }

  c10::IValue forward(const Inputs& inputs) override;

 private:
  bool is_decoder_;
  std::vector<ModulePtr> layers_;
  ModulePtr norm_, dropout_;

 protected:
  bool drops_output_ = false;  // dropout is behind the last normalization, too
};

// Inputs: the encoder's input, attention_mask, decoder_input_ids, decoder_attention_mask, past_key_values. Gives logits
// [batch, length, vocabulary]; with past_key_values, which is an empty list in the first call, [logits,
// past_key_values]: the encoder is called in the first one alone.
class EncoderDecoder final : public Module {
 public:
  // The modules are children already. `scale` is the factor of the states before the head.
  EncoderDecoder(std::string kind, std::string input_name, bool takes_mask, double scale)
      : Module(std::move(kind)), input_name_(std::move(input_name)), takes_mask_(takes_mask), scale_(scale) {}
  void set_parts(ModulePtr encoder, ModulePtr decoder, ModulePtr head);
  // Adds the buffer `final_logits_bias` [1, vocabulary] of zeros, which is added to the logits.
  void add_logits_bias(int64_t vocabulary, at::ScalarType dtype);

  std::vector<std::string> input_names() const override;

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  std::string input_name_;
  bool takes_mask_;
  double scale_;
  std::optional<size_t> bias_;  // of the logits, among the buffers
  ModulePtr encoder_, decoder_, head_;
};

}  // namespace accel::nn
