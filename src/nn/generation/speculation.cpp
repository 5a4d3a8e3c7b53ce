// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/speculation.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::nn {
namespace {

int64_t drawn(const at::Tensor& probabilities, const std::optional<at::Generator>& generator) {
  return at::multinomial(probabilities, 1, false, generator).item<int64_t>();
}

// The token behind `tokens`, and whether it is the guess. The rejection rule: a guess is taken with the probability p /
// q; otherwise the token is drawn by what p has more than q.
std::pair<int64_t, bool> checked(const at::Tensor& p, int64_t guess, const at::Tensor& q,
                                 const std::optional<at::Generator>& generator) {
  const double of_guess = q.defined() ? q[guess].item<double>() : 1;
  const double chance = at::rand({}, generator, p.options().dtype(at::kDouble)).item<double>();
  if (chance * of_guess < p[guess].item<double>()) return {guess, true};
  at::Tensor rest = q.defined() ? (p - q).clamp_min(0) : p.clone();
  if (!q.defined()) rest[guess].zero_();
  // Both are the same but for rounding.
  if (rest.sum().item<double>() <= 0) rest = p;
  return {drawn(rest, generator), false};
}

}  // namespace

Guesses look_up(const std::vector<int64_t>& tokens, int64_t matched, int64_t count) {
  const auto length = static_cast<int64_t>(tokens.size());
  for (int64_t size = std::min(matched, length - 1); size > 0; size--) {
    const auto latest = tokens.end() - size;
    for (int64_t begin = length - size - 1; begin >= 0; begin--) {
      if (!std::equal(latest, tokens.end(), tokens.begin() + begin)) continue;
      const auto first = tokens.begin() + begin + size;
      return {{first, first + std::min(count, static_cast<int64_t>(tokens.end() - first))}, {}};
    }
  }
  return {};
}

Guesses DraftModel::guess(const std::vector<int64_t>& tokens, const TokenChoiceSettings& choice, int64_t count,
                          const std::optional<at::Generator>& generator) {
  const auto same = std::mismatch(computed_.begin(), computed_.end(), tokens.begin(), tokens.end()).first;
  const int64_t known = std::min<int64_t>(same - computed_.begin(), static_cast<int64_t>(tokens.size()) - 1);
  if (sequence_->length() - known > CachedSequence::kMaxRollback)
    sequence_ = decoder_.new_sequence();
  else
    sequence_->truncate(known);
  const int64_t limit = decoder_.max_positions();
  if (limit != 0) count = std::min(count, limit - static_cast<int64_t>(tokens.size()));
  Guesses guesses;
  computed_ = tokens;
  std::vector<at::Tensor> probabilities;
  std::vector<int64_t> added(tokens.begin() + sequence_->length(), tokens.end());
  while (static_cast<int64_t>(guesses.tokens.size()) < count) {
    const at::Tensor scores = decoder_.scores({{sequence_.get(), tokens_tensor(added, decoder_.device())}});
    const at::Tensor earlier = tokens_tensor(computed_, scores.device()).unsqueeze(0);
    int64_t token = 0;
    if (choice.samples) {
      probabilities.push_back(token_probabilities(scores, earlier, {}, choice));
      require_finite(probabilities.back().select(1, 0));
      token = drawn(probabilities.back()[0], generator);
    } else {
      token = choose_tokens(scores, earlier, {}, choice, generator).tokens.item<int64_t>();
    }
    added = {token};
    guesses.tokens.push_back(token);
    computed_.push_back(token);
  }
  computed_.resize(static_cast<size_t>(sequence_->length()));
  if (!probabilities.empty()) guesses.probabilities = at::cat(probabilities);
  return guesses;
}

NextTokens next_tokens(const at::Tensor& scores, const std::vector<int64_t>& tokens, const Guesses& guesses,
                       const TokenChoiceSettings& choice, const std::optional<at::Generator>& generator) {
  require(!guesses.probabilities.defined() || guesses.probabilities.size(1) == scores.size(1), Status::kInvalidArgument,
          "draft_model has a vocabulary of ", guesses.probabilities.defined() ? guesses.probabilities.size(1) : 0,
          " tokens; expected that of the model, ", scores.size(1));
  NextTokens next;
  std::vector<int64_t> earlier_tokens = tokens;
  for (int64_t i = 0;; i++) {
    const auto place = static_cast<size_t>(i);
    const bool has_guess = place < guesses.tokens.size();
    const at::Tensor row = scores.narrow(0, i, 1);
    const at::Tensor earlier =
        choice.repetition_penalty == 1 ? at::Tensor() : tokens_tensor(earlier_tokens, scores.device()).unsqueeze(0);
    const at::Tensor likely = token_log_probabilities(row, earlier, {}, choice)[0];
    require_finite(likely[0]);
    int64_t token = 0;
    bool is_guess = false;
    if (!choice.samples) {
      token = likely.argmax().item<int64_t>();
      is_guess = has_guess && token == guesses.tokens[place];
    } else {
      const at::Tensor p = token_probabilities(row, earlier, {}, choice)[0];
      if (has_guess)
        std::tie(token, is_guess) =
            checked(p, guesses.tokens[place], guesses.probabilities.defined() ? guesses.probabilities[i] : at::Tensor(),
                    generator);
      else
        token = drawn(p, generator);
    }
    next.tokens.push_back(token);
    next.log_probabilities.push_back(likely[token].item<double>());
    earlier_tokens.push_back(token);
    if (!is_guess) return next;
  }
}

}  // namespace accel::nn
