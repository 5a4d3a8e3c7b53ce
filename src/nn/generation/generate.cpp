// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/generate.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/generation/decoded_sequences.hpp"
#include "nn/generation/paged_decoder.hpp"
#include "nn/generation/prompt_cache.hpp"
#include "nn/generation/speculation.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

bool takes(const Module& module, const char* input) {
  const std::vector<std::string> names = module.input_names();
  return std::find(names.begin(), names.end(), input) != names.end();
}

void check_inputs(const Module& module, const at::Tensor& tokens, const at::Tensor& mask,
                  const GenerationSettings& settings) {
  require(takes(module, "past_key_values"), Status::kUnsupported, "a module of kind '", module.kind(),
          "' takes no past_key_values; expected a decoder, as accel_module_from_config() makes them");
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

// The scores of the next tokens of a batch of sequences.
class NextScores {
 public:
  virtual ~NextScores() = default;
  // [batch, vocabulary], behind these tokens too, [batch, n]. Sequences that have ended may get any.
  virtual at::Tensor scores(const at::Tensor& added, const at::Tensor& has_ended) = 0;
};

// By a model with lists of keys and values, of its own kind.
class ListedScores final : public NextScores {
 public:
  ListedScores(Module& module, const at::Tensor& mask) : module_(module) {
    if (!mask.defined()) return;
    mask_ = mask.to(at::kBool);
    positions_ = (mask_.to(at::kLong).cumsum(1) - 1).clamp_min(0);
  }

  at::Tensor scores(const at::Tensor& added, const at::Tensor& /*has_ended*/) override {
    if (mask_.defined() && is_begun_) {
      mask_ = at::cat({mask_, at::ones_like(added, at::kBool)}, 1);
      positions_ = positions_.slice(1, -1) + 1;
    }
    is_begun_ = true;
    Inputs inputs{added, past_};
    if (mask_.defined()) inputs.insert(inputs.end(), {mask_, positions_});
    const c10::IValue output = module_.call(inputs);
    const auto parts = tree::sequence_items(output);
    past_ = parts[1];
    return parts[0].toTensor().select(1, -1);
  }

 private:
  Module& module_;
  at::Tensor mask_, positions_;
  bool is_begun_ = false;
  c10::IValue past_ = tree::new_list();
};

std::vector<int64_t> host_tokens(const at::Tensor& tokens) {
  const at::Tensor host = tokens.cpu().contiguous();
  const auto* const first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

// By a decoder of this library: without padding, and without sequences that have ended.
class PagedScores final : public NextScores {
 public:
  PagedScores(Module& module, const at::Tensor& mask, const PromptCaches& prompts)
      : decoder_(module.shared_from_this()), mask_(mask.defined() ? mask.to(at::kBool) : mask), prompts_(prompts) {}

  at::Tensor scores(const at::Tensor& added, const at::Tensor& has_ended) override {
    if (sequences_.empty()) return first_scores(added);
    std::vector<PagedDecoder::Part> parts;
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < added.size(0); row++) {
      if (has_ended.defined() && has_ended[row].item<bool>()) continue;
      rows.push_back(row);
      parts.push_back({sequences_[static_cast<size_t>(row)].get(), added[row]});
    }
    const at::Tensor scores = decoder_.scores(parts);
    if (scores.size(0) == added.size(0)) return scores;
    return at::zeros({added.size(0), scores.size(1)}, scores.options())
        .index_copy_(0, tokens_tensor(rows, scores.device()), scores);
  }

 private:
  at::Tensor first_scores(const at::Tensor& prompts) {
    std::unique_ptr<CachedSequence> given;
    if (prompts_.given != nullptr) given = restore_prompt(decoder_, *prompts_.given);
    std::vector<PagedDecoder::Part> parts;
    for (int64_t row = 0; row < prompts.size(0); row++) {
      const at::Tensor tokens = mask_.defined() ? prompts[row].masked_select(mask_[row]) : prompts[row];
      int64_t known = 0;
      if (given != nullptr)
        known = std::min(common_length(host_tokens(tokens), prompts_.given->tokens), tokens.size(0) - 1);
      sequences_.push_back(known > 0 ? given->fork(known) : decoder_.new_sequence());
      if (sequences_.back() == nullptr) sequences_.back() = decoder_.new_sequence();
      parts.push_back({sequences_.back().get(), tokens.slice(0, sequences_.back()->length())});
    }
    const at::Tensor scores = decoder_.scores(parts);
    if (prompts_.made != nullptr) *prompts_.made = read_prompt(decoder_, *sequences_[0], host_tokens(prompts));
    return scores;
  }

  PagedDecoder decoder_;
  at::Tensor mask_;
  PromptCaches prompts_;
  std::vector<std::unique_ptr<CachedSequence>> sequences_;
};

// Tokens of suppress_tokens are never chosen, and those of begin_suppress_tokens not first.
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

// By an encoder-decoder, whose tokens are those of `DecodedSequences`.
class DecodedScores final : public NextScores {
 public:
  explicit DecodedScores(DecodedSequences sequences) : sequences_(std::move(sequences)) {}

  const at::Tensor& tokens() const { return sequences_.tokens(); }
  at::Tensor scores(const at::Tensor& added, const at::Tensor& /*has_ended*/) override {
    if (is_begun_) sequences_.add(added.select(1, 0));
    is_begun_ = true;
    return sequences_.scores();
  }

 private:
  DecodedSequences sequences_;
  bool is_begun_ = false;
};

// Sequences of `tokens` [batch, length], of which [prompt, ...) are new, that end with one of these.
at::Tensor end_with(const at::Tensor& tokens, int64_t prompt, const std::vector<std::vector<int64_t>>& stops) {
  at::Tensor ends = at::zeros({tokens.size(0)}, tokens.options().dtype(at::kBool));
  for (const std::vector<int64_t>& stop : stops) {
    const auto length = static_cast<int64_t>(stop.size());
    if (length > tokens.size(1) - prompt) continue;
    ends = ends.logical_or(tokens.slice(1, -length).eq(at::tensor(stop, tokens.options())).all(1));
  }
  return ends;
}

Generated generate_batch(NextScores& source, const at::Tensor& prompts, const at::Tensor& mask,
                         const GenerationSettings& settings, int64_t limit, const OnTokens& on_tokens) {
  std::optional<at::Generator> generator;
  if (settings.seed) generator = tensor::new_generator(*settings.seed, prompts.device());
  const at::Tensor stops =
      settings.stop_tokens.empty() ? at::Tensor() : at::tensor(settings.stop_tokens, prompts.options());
  const bool has_stops = stops.defined() || !settings.stop_sequences.empty();
  at::Tensor has_ended = has_stops ? at::zeros({prompts.size(0)}, prompts.options().dtype(at::kBool)) : at::Tensor();
  at::Tensor tokens = prompts, added = prompts, is_token = mask.defined() ? mask.to(at::kBool) : mask;
  std::vector<at::Tensor> log_probabilities;
  for (int64_t step = 0; step < settings.max_new_tokens && tokens.size(1) <= limit; step++) {
    ChosenTokens chosen = choose_tokens(without_suppressed(source.scores(added, has_ended), settings, step == 0),
                                        tokens, is_token, settings.choice, generator);
    if (has_stops) {
      chosen.tokens = at::where(has_ended, settings.pad_token, chosen.tokens);
      chosen.log_probabilities = chosen.log_probabilities.masked_fill(has_ended, 0);
    }
    added = chosen.tokens.unsqueeze(1);
    tokens = at::cat({tokens, added}, 1);
    if (is_token.defined()) is_token = at::cat({is_token, at::ones_like(added, at::kBool)}, 1);
    log_probabilities.push_back(chosen.log_probabilities);
    if (stops.defined()) has_ended = has_ended.logical_or(at::isin(chosen.tokens, stops));
    if (has_stops) has_ended = has_ended.logical_or(end_with(tokens, prompts.size(1), settings.stop_sequences));
    if (on_tokens && !on_tokens(chosen.tokens)) break;
    if (has_stops && has_ended.all().item<bool>()) break;
  }
  const at::Tensor all = at::stack(log_probabilities, 1);
  require_finite(all);
  return {tokens, all};
}

// One sequence, whose tokens are guessed.
Generated generate_guessed(Module& module, const at::Tensor& prompt, const GenerationSettings& settings,
                           const PromptCaches& prompts, const OnTokens& on_tokens) {
  PagedDecoder decoder(module.shared_from_this());
  std::optional<at::Generator> generator;
  if (settings.seed) generator = tensor::new_generator(*settings.seed, prompt.device());
  const SpeculationSettings& speculation = settings.speculation;
  std::optional<DraftModel> draft;
  if (speculation.draft != nullptr) draft.emplace(speculation.draft);
  std::vector<int64_t> tokens = host_tokens(prompt);
  const size_t length = tokens.size();
  std::unique_ptr<CachedSequence> sequence;
  if (prompts.given != nullptr) {
    const int64_t known = std::min(common_length(tokens, prompts.given->tokens), static_cast<int64_t>(length) - 1);
    sequence = restore_prompt(decoder, *prompts.given)->fork(known);
  }
  if (sequence == nullptr) sequence = decoder.new_sequence();
  std::vector<double> log_probabilities;
  const int64_t limit = decoder.max_positions() == 0 ? INT64_MAX : decoder.max_positions();
  for (bool goes_on = true; goes_on;) {
    const auto missing = settings.max_new_tokens - static_cast<int64_t>(tokens.size() - length);
    const int64_t count = std::min({speculation.tokens, missing - 1, limit - static_cast<int64_t>(tokens.size())});
    Guesses guesses;
    if (count > 0)
      guesses = draft ? draft->guess(tokens, settings.choice, count, generator)
                      : look_up(tokens, speculation.lookup_tokens, count);
    std::vector<int64_t> added(tokens.begin() + sequence->length(), tokens.end());
    added.insert(added.end(), guesses.tokens.begin(), guesses.tokens.end());
    const at::Tensor scores = decoder.scores(
        {{sequence.get(), tokens_tensor(added, decoder.device()), static_cast<int64_t>(guesses.tokens.size()) + 1}});
    const NextTokens next = next_tokens(scores, tokens, guesses, settings.choice, generator);
    if (prompts.made != nullptr && tokens.size() == length) {
      const auto whole = sequence->fork(static_cast<int64_t>(length));
      require(whole != nullptr, Status::kInternal, "a prompt cannot be forked");
      *prompts.made = read_prompt(decoder, *whole, tokens);
    }
    for (size_t i = 0; i < next.tokens.size() && goes_on; i++) {
      tokens.push_back(next.tokens[i]);
      log_probabilities.push_back(next.log_probabilities[i]);
      goes_on = !ends_with_stop(tokens, length, settings) &&
                static_cast<int64_t>(tokens.size() - length) < settings.max_new_tokens &&
                static_cast<int64_t>(tokens.size()) <= limit;
      if (on_tokens && !on_tokens(tokens_tensor({next.tokens[i]}, prompt.device()))) goes_on = false;
    }
    sequence->truncate(static_cast<int64_t>(tokens.size()) - 1);
  }
  return {tokens_tensor(tokens, prompt.device()).unsqueeze(0),
          at::tensor(log_probabilities).to(prompt.device(), at::kFloat).unsqueeze(0)};
}

}  // namespace

Generated generate(Module& module, const at::Tensor& tokens, const at::Tensor& mask, const GenerationSettings& settings,
                   const OnTokens& on_tokens, const PromptCaches& prompts) {
  const at::NoGradGuard no_grad;
  require_evaluation(module);
  if (settings.speculation.draft != nullptr) require_evaluation(*settings.speculation.draft);
  check_generation(settings);
  const bool has_prompts = prompts.given != nullptr || prompts.made != nullptr;
  if (is_encoder_decoder(module)) {
    require(!has_prompts && !settings.speculation.guesses(), Status::kUnsupported, "a module of kind '", module.kind(),
            "' has an encoder; expected no prompt cache, draft_model and lookup_tokens");
    DecodedScores source(DecodedSequences(module, tokens, mask, settings.decoder_tokens));
    return generate_batch(source, source.tokens(), {}, settings, INT64_MAX, on_tokens);
  }
  check_inputs(module, tokens, mask, settings);
  const int64_t positions = PagedDecoder::position_limit(module);
  const int64_t length = mask.defined() ? mask.to(at::kLong).sum(1).max().item<int64_t>() : tokens.size(1);
  require(positions == 0 || length <= positions, Status::kInvalidArgument, "input_ids has ", length,
          " tokens; expected at most the ", positions, " positions of the model");
  const int64_t limit = positions == 0 ? INT64_MAX : positions + tokens.size(1) - length;
  const bool is_paged = PagedDecoder::is_paged(module);
  require(is_paged || (!has_prompts && !settings.speculation.guesses()), Status::kUnsupported, "a module of kind '",
          module.kind(), "' has no attention with a paged cache, which guesses and prompt caches need; expected a ",
          "decoder, as accel_module_from_config() makes them");
  require(tokens.size(0) == 1 || (prompts.made == nullptr && !settings.speculation.guesses()), Status::kUnsupported,
          "input_ids has ", tokens.size(0), " sequences; expected one, to save its prompt or to guess its tokens. ",
          "Others can be guessed in a generation batch");
  if (settings.speculation.guesses()) {
    check_unsuppressed(settings);
    return generate_guessed(module, mask.defined() ? tokens.masked_select(mask.to(at::kBool)) : tokens[0], settings,
                            prompts, on_tokens);
  }
  // On other devices one kernel for the whole batch is faster than one for each sequence.
  if (is_paged && (tokens.is_cpu() || has_prompts)) {
    PagedScores source(module, mask, prompts);
    return generate_batch(source, tokens, mask, settings, limit, on_tokens);
  }
  ListedScores source(module, mask);
  return generate_batch(source, tokens, mask, settings, limit, on_tokens);
}

}  // namespace accel::nn
