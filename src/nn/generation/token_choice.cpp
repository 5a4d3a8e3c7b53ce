// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/token_choice.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.hpp"

namespace accel::nn {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

at::Tensor penalized(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token, double penalty) {
  if (penalty == 1 || earlier.size(1) == 0) return scores;
  const at::Tensor counts = is_token.defined() ? is_token.to(at::kFloat) : at::ones_like(earlier, at::kFloat);
  const at::Tensor is_there = at::zeros_like(scores).scatter_add(1, earlier, counts).gt(0);
  return at::where(is_there, at::where(scores.lt(0), scores * penalty, scores / penalty), scores);
}

at::Tensor limited(at::Tensor scores, const TokenChoiceSettings& settings) {
  scores = scores / settings.temperature;
  if (settings.top_k > 0 && settings.top_k < scores.size(1)) {
    const at::Tensor least = std::get<0>(scores.topk(settings.top_k, 1)).slice(1, settings.top_k - 1);
    scores = scores.masked_fill(scores.lt(least), kNever);
  }
  if (settings.top_p < 1) {
    const auto [sorted, order] = scores.sort(/*stable=*/true, 1, /*descending=*/true);
    // A token stays if those before it have not reached the probability; the first one always does.
    const at::Tensor likely = sorted.softmax(1), before = likely.cumsum(1) - likely;
    const at::Tensor dropped = before.ge(settings.top_p);
    scores = scores.masked_fill(dropped.scatter(1, order, dropped), kNever);
  }
  if (settings.min_p > 0) {
    const at::Tensor likely = scores.softmax(1);
    scores = scores.masked_fill(likely.lt(likely.amax(1, true) * settings.min_p), kNever);
  }
  return scores;
}

}  // namespace

void check_token_choice(const TokenChoiceSettings& settings) {
  const auto check = [](bool holds, const char* name, double value, const char* expected) {
    require(holds, Status::kInvalidArgument, name, " is ", value, "; expected ", expected);
  };
  check(settings.temperature > 0 && std::isfinite(settings.temperature), "temperature", settings.temperature,
        "more than 0; for the most likely tokens leave sample at 0");
  check(settings.top_k >= 0, "top_k", static_cast<double>(settings.top_k), "0 or more");
  check(settings.top_p > 0 && settings.top_p <= 1, "top_p", settings.top_p, "more than 0 and at most 1");
  check(settings.min_p >= 0 && settings.min_p <= 1, "min_p", settings.min_p, "a number from 0 to 1");
  check(settings.repetition_penalty > 0 && std::isfinite(settings.repetition_penalty), "repetition_penalty",
        settings.repetition_penalty, "more than 0");
}

at::Tensor token_probabilities(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token,
                               const TokenChoiceSettings& settings) {
  return limited(penalized(scores.to(at::kFloat), earlier, is_token, settings.repetition_penalty), settings).softmax(1);
}

at::Tensor token_log_probabilities(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token,
                                   const TokenChoiceSettings& settings) {
  return penalized(scores.to(at::kFloat), earlier, is_token, settings.repetition_penalty).log_softmax(1);
}

void require_finite(const at::Tensor& log_probabilities) {
  require(!log_probabilities.isnan().any().item<bool>(), Status::kInvalidState,
          "the model gave scores that are not finite; expected weights without NaN, and a dtype with their range");
}

ChosenTokens choose_tokens(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token,
                           const TokenChoiceSettings& settings, const std::optional<at::Generator>& generator) {
  const at::Tensor all = penalized(scores.to(at::kFloat), earlier, is_token, settings.repetition_penalty);
  const at::Tensor likely = all.log_softmax(1);
  if (settings.samples || likely.is_cpu()) require_finite(likely.select(1, 0));
  at::Tensor tokens;
  if (settings.samples)
    tokens = at::multinomial(limited(all, settings).softmax(1), 1, false, generator);
  else
    tokens = all.argmax(1, true);
  return {tokens.squeeze(1), likely.gather(1, tokens).squeeze(1)};
}

}  // namespace accel::nn
