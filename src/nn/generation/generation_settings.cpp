// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/generation_settings.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "nn/cache/paged_cache.hpp"

namespace accel::nn {

void require_evaluation(const Module& module) {
  require(!module.is_training(), Status::kInvalidState,
          "the model is in training, where dropout changes what it gives; expected accel_module_train(module, 0)");
}

void check_generation(const GenerationSettings& settings) {
  require(settings.max_new_tokens >= 1, Status::kInvalidArgument, "max_new_tokens is ", settings.max_new_tokens,
          "; expected 1 or more");
  check_token_choice(settings.choice);
  for (const std::vector<int64_t>& stop : settings.stop_sequences)
    require(!stop.empty(), Status::kInvalidArgument,
            "stop_sequences has an empty list; expected one token or more in each");
  const SpeculationSettings& speculation = settings.speculation;
  require(speculation.tokens >= 1 && speculation.tokens <= CachedSequence::kMaxRollback, Status::kInvalidArgument,
          "speculated_tokens is ", speculation.tokens, "; expected 1 to ", CachedSequence::kMaxRollback);
  require(speculation.lookup_tokens >= 0, Status::kInvalidArgument, "lookup_tokens is ", speculation.lookup_tokens,
          "; expected 0 or more");
  require(speculation.draft == nullptr || speculation.lookup_tokens == 0, Status::kInvalidArgument,
          "draft_model and lookup_tokens are both given; expected one of them");
}

void check_unsuppressed(const GenerationSettings& settings) {
  require(settings.suppress_tokens.empty() && settings.begin_suppress_tokens.empty() && settings.decoder_tokens.empty(),
          Status::kUnsupported,
          "suppress_tokens, begin_suppress_tokens or decoder_tokens are given; expected none in a ",
          "generation batch, nor where tokens are guessed");
}

int64_t common_length(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const auto end = a.begin() + static_cast<int64_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), end, b.begin()).first - a.begin();
}

bool ends_with_stop(const std::vector<int64_t>& tokens, size_t prompt_length, const GenerationSettings& settings) {
  if (tokens.size() <= prompt_length) return false;
  const std::vector<int64_t>& stops = settings.stop_tokens;
  if (std::find(stops.begin(), stops.end(), tokens.back()) != stops.end()) return true;
  return std::any_of(
      settings.stop_sequences.begin(), settings.stop_sequences.end(), [&](const std::vector<int64_t>& stop) {
        return stop.size() <= tokens.size() - prompt_length && std::equal(stop.rbegin(), stop.rend(), tokens.rbegin());
      });
}

}  // namespace accel::nn
