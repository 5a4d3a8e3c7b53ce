// SPDX-License-Identifier: Apache-2.0
// Sentence embedding: one vector for a sequence, pooled from the hidden states of an encoder (Reimers and Gurevych,
// "Sentence-BERT", 2019).
#pragma once

#include <string>
#include <vector>

#include "config/generated/choices/sentence_pooling.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Takes the encoder's inputs, whose second one is the mask of padding, and gives [batch, hidden size].
class SentenceEmbedding final : public Module {
 public:
  // `normalizes`: to length 1. The encoder is the child "encoder".
  SentenceEmbedding(ModulePtr encoder, SentencePooling pooling, bool normalizes);
  std::vector<std::string> input_names() const override { return encoder_->input_names(); }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  ModulePtr encoder_;
  SentencePooling pooling_;
  bool normalizes_;
};

}  // namespace accel::nn
