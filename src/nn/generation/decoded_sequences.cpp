// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/decoded_sequences.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {

bool is_encoder_decoder(const Module& module) {
  const std::vector<std::string> names = module.input_names();
  return names.size() == 5 && names[1] == "attention_mask" && names[2] == "decoder_input_ids" &&
         names[3] == "decoder_attention_mask" && names[4] == "past_key_values";
}

DecodedSequences::DecodedSequences(Module& module, const at::Tensor& input, const at::Tensor& mask,
                                   const std::vector<int64_t>& first_tokens)
    : module_(module), input_(input), mask_(mask), past_(tree::new_list()) {
  require(input.dim() >= 2 && input.size(0) > 0 && input.size(1) > 0, Status::kShapeMismatch,
          "the encoder's input has the shape ", input.sizes(), "; expected [batch, length], or features [batch, ...]");
  require(input.dim() != 2 || input.scalar_type() == at::kLong, Status::kTypeMismatch, "input_ids is ",
          tensor::dtype_name(input.scalar_type()), "; expected int64");
  require(!first_tokens.empty(), Status::kInvalidArgument, "decoder_tokens is empty, and a module of kind '",
          module.kind(), "' has a decoder of its own; expected the decoder_start_token_id of its configuration");
  require(!mask.defined() || mask.sizes() == input.sizes(), Status::kShapeMismatch, "attention_mask has the shape ",
          mask.defined() ? text(mask.sizes()) : "", "; expected that of input_ids, ", input.sizes());
  tokens_ = added_ = at::tensor(first_tokens, at::TensorOptions().dtype(at::kLong).device(input.device()))
                         .expand({input.size(0), -1})
                         .contiguous();
}

at::Tensor DecodedSequences::scores() {
  // The mask of the encoder's input is that of its cached keys, too.
  const c10::IValue mask = mask_.defined() ? c10::IValue(mask_) : c10::IValue();
  const c10::IValue output = module_.call(Inputs{input_, mask, added_, {}, past_});
  const auto parts = tree::sequence_items(output);
  past_ = parts[1];
  return parts[0].toTensor().select(1, -1);
}

void DecodedSequences::add(const at::Tensor& tokens) {
  added_ = tokens.unsqueeze(1);
  tokens_ = at::cat({tokens_, added_}, 1);
}

}  // namespace accel::nn
