#include "nn/generation/generate.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/generation/decoded_sequences.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

bool takes(const Module& module, const char* input) {
  const std::vector<std::string> names = module.input_names();
  return std::find(names.begin(), names.end(), input) != names.end();
}

void check_settings(const Module& module, const GenerationSettings& settings) {
  require(!module.is_training(), Status::kInvalidState,
          "the model is in training, where dropout changes what it gives; expected accel_module_train(module, 0)");
  require(settings.max_new_tokens >= 1, Status::kInvalidArgument, "max_new_tokens is ", settings.max_new_tokens,
          "; expected 1 or more");
  check_token_choice(settings.choice);
}

void check_inputs(const Module& module, const at::Tensor& tokens, const at::Tensor& mask,
                  const GenerationSettings& settings) {
  require(takes(module, "past_key_values"), Status::kUnsupported, "a module of kind '", module.kind(),
          "' takes no past_key_values; expected a decoder, as accel_module_from_config() makes them");
  check_settings(module, settings);
  require(settings.decoder_tokens.empty(), Status::kInvalidArgument, "decoder_tokens are given, and a module of kind '",
          module.kind(), "' has no encoder; expected none");
  require(tokens.dim() == 2 && tokens.size(0) > 0 && tokens.size(1) > 0, Status::kShapeMismatch,
          "input_ids has the shape ", tokens.sizes(), "; expected [batch, length] with a token at least");
  require(tokens.scalar_type() == at::kLong, Status::kTypeMismatch, "input_ids is ",
          tensor::dtype_name(tokens.scalar_type()), "; expected int64");
  if (!mask.defined()) return;
  require(takes(module, "attention_mask"), Status::kUnsupported, "a module of kind '", module.kind(),
          "' takes no attention_mask; expected sequences of one length, and no mask");
  require(mask.sizes() == tokens.sizes(), Status::kShapeMismatch, "attention_mask has the shape ", mask.sizes(),
          "; expected that of input_ids, ", tokens.sizes());
  require(
      mask.select(1, -1).to(at::kBool).all().item<bool>(), Status::kInvalidArgument,
      "attention_mask has padding at the end of a sequence; expected padding on the left, where no token follows it");
}

// The sequences so far, and what the model needs of them.
class Sequences {
 public:
  Sequences(Module& module, const at::Tensor& tokens, const at::Tensor& mask)
      : module_(module), tokens_(tokens), added_(tokens) {
    if (!mask.defined()) return;
    mask_ = mask.to(at::kBool);
    positions_ = (mask_.to(at::kLong).cumsum(1) - 1).clamp_min(0);
  }

  // The scores of the next token, [batch, vocabulary].
  at::Tensor scores() {
    Inputs inputs{added_, past_};
    if (mask_.defined()) inputs.insert(inputs.end(), {mask_, positions_});
    const c10::IValue output = module_.call(inputs);
    const auto parts = tree::sequence_items(output);
    past_ = parts[1];
    return parts[0].toTensor().select(1, -1);
  }

  void add(const at::Tensor& tokens) {
    added_ = tokens.unsqueeze(1);
    tokens_ = at::cat({tokens_, added_}, 1);
    if (!mask_.defined()) return;
    mask_ = at::cat({mask_, at::ones_like(added_, at::kBool)}, 1);
    positions_ = positions_.slice(1, -1) + 1;
  }

  const at::Tensor& tokens() const { return tokens_; }
  const at::Tensor& mask() const { return mask_; }

 private:
  Module& module_;
  at::Tensor tokens_, added_, mask_, positions_;
  c10::IValue past_ = tree::new_list();
};

// Never chosen: `always`, and by the first choice `first`, too.
at::Tensor without_suppressed(const at::Tensor& scores, const GenerationSettings& settings, bool is_first) {
  std::vector<int64_t> suppressed = settings.suppress_tokens;
  if (is_first)
    suppressed.insert(suppressed.end(), settings.begin_suppress_tokens.begin(), settings.begin_suppress_tokens.end());
  if (suppressed.empty()) return scores;
  for (const int64_t token : suppressed)
    require(token >= 0 && token < scores.size(1), Status::kInvalidArgument, "a suppressed token is ", token,
            "; expected one from 0 to ", scores.size(1) - 1);
  const at::Tensor places = at::tensor(suppressed, scores.options().dtype(at::kLong));
  return scores.index_fill(1, places, -std::numeric_limits<double>::infinity());
}

// `Kind` is Sequences or DecodedSequences.
template <typename Kind>
Generated add_tokens(Kind& sequences, const GenerationSettings& settings, const OnTokens& on_tokens) {
  const at::Tensor tokens = sequences.tokens();
  std::optional<at::Generator> generator;
  if (settings.seed) generator = tensor::new_generator(*settings.seed, tokens.device());
  const at::Tensor stops =
      settings.stop_tokens.empty() ? at::Tensor() : at::tensor(settings.stop_tokens, tokens.options());
  at::Tensor has_ended = at::zeros({tokens.size(0)}, tokens.options().dtype(at::kBool));
  std::vector<at::Tensor> log_probabilities;
  for (int64_t step = 0; step < settings.max_new_tokens; step++) {
    ChosenTokens chosen = choose_tokens(without_suppressed(sequences.scores(), settings, step == 0), sequences.tokens(),
                                        sequences.mask(), settings.choice, generator);
    if (stops.defined()) {
      chosen.tokens = at::where(has_ended, settings.pad_token, chosen.tokens);
      chosen.log_probabilities = chosen.log_probabilities.masked_fill(has_ended, 0);
      has_ended = has_ended.logical_or(at::isin(chosen.tokens, stops));
    }
    sequences.add(chosen.tokens);
    log_probabilities.push_back(chosen.log_probabilities);
    if (on_tokens && !on_tokens(chosen.tokens)) break;
    if (stops.defined() && has_ended.all().item<bool>()) break;
  }
  return {sequences.tokens(), at::stack(log_probabilities, 1)};
}

}  // namespace

Generated generate(Module& module, const at::Tensor& tokens, const at::Tensor& mask, const GenerationSettings& settings,
                   const OnTokens& on_tokens) {
  const at::NoGradGuard no_grad;
  if (is_encoder_decoder(module)) {
    check_settings(module, settings);
    DecodedSequences sequences(module, tokens, mask, settings.decoder_tokens);
    return add_tokens(sequences, settings, on_tokens);
  }
  check_inputs(module, tokens, mask, settings);
  Sequences sequences(module, tokens, mask);
  return add_tokens(sequences, settings, on_tokens);
}

}  // namespace accel::nn
