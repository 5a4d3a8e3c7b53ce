// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/sentence_embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>

#include <limits>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr double kSmallestLength = 1e-12;  // of a vector that is divided by its length

// `mask` [batch, length, 1] in the dtype of `hidden` [batch, length, size].
at::Tensor pool(const at::Tensor& hidden, const at::Tensor& mask, SentencePooling pooling) {
  switch (pooling) {
    case SentencePooling::kMean:
      return (hidden * mask).sum(1) / mask.sum(1).clamp_min(1e-9);
    case SentencePooling::kFirst:
      return hidden.select(1, 0);
    case SentencePooling::kLast: {
      // The last place with a 1: padding may be on either side.
      const at::Tensor last = mask.size(1) - 1 - mask.flip(1).argmax(1, true);
      return hidden.gather(1, last.expand({-1, 1, hidden.size(2)})).squeeze(1);
    }
    case SentencePooling::kMax:
      return hidden.masked_fill(mask.eq(0), -std::numeric_limits<double>::infinity()).amax(1);
  }
  return hidden;
}

}  // namespace

SentenceEmbedding::SentenceEmbedding(ModulePtr encoder, SentencePooling pooling, bool normalizes)
    : Module("SentenceEmbedding"), encoder_(std::move(encoder)), pooling_(pooling), normalizes_(normalizes) {
  const std::vector<std::string> names = encoder_->input_names();
  require(names.size() > 1 && names[1] == "attention_mask", Status::kInvalidArgument, "a module of kind '",
          encoder_->kind(), "' has no second input attention_mask; expected an encoder, such as a BertModel");
  add_child("encoder", encoder_);
}

c10::IValue SentenceEmbedding::forward(const Inputs& inputs) {
  const c10::IValue output = encoder_->call(inputs);
  const at::Tensor hidden = output.isTensor() ? output.toTensor() : tree::sequence_items(output)[0].toTensor();
  require(hidden.dim() == 3, Status::kShapeMismatch, "the encoder gave the shape ", hidden.sizes(),
          "; expected hidden states [batch, length, size], as a model without a head gives them");
  const bool has_mask = inputs.size() > 1 && !inputs[1].isNone();
  const at::Tensor mask = has_mask ? tensor_input(inputs, 1, kind()).to(hidden.scalar_type()).unsqueeze(-1)
                                   : at::ones({hidden.size(0), hidden.size(1), 1}, hidden.options());
  at::Tensor pooled = pool(hidden, mask, pooling_);
  if (normalizes_) pooled = pooled / at::linalg_vector_norm(pooled, 2, 1, true).clamp_min(kSmallestLength);
  return pooled;
}

}  // namespace accel::nn
