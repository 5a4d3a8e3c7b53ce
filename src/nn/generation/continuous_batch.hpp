// SPDX-License-Identifier: Apache-2.0
// Continuous batch: sequences that get their tokens together, in one call of the model for each step, and join and
// leave while others go on (Yu et al., "Orca", 2022; Kwon et al., "PagedAttention", 2023).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "nn/generation/generation_settings.hpp"
#include "nn/module.hpp"

namespace accel::nn {

struct BatchLimits {
  int64_t max_sequences = 16;       // in one step
  int64_t max_cached_tokens = 0;    // of all sequences; 0: what they need
  int64_t max_prompt_tokens = 512;  // in one step
  bool reuses_prompts = true;       // those of sequences that have ended, too
};

enum class SequenceEnd : uint8_t {
  kNone,    // it goes on
  kStop,    // a stop token or sequence
  kLength,  // max_new_tokens, or the last position of the model
  kFailed,  // its scores are not finite
};
const char* sequence_end_name(SequenceEnd end);  // "", "stop", "length", "failed"

struct NewToken {
  int64_t sequence = 0;
  int64_t token = -1;  // -1: none, the sequence has failed
  double log_probability = 0;
  SequenceEnd end = SequenceEnd::kNone;
  std::string error;  // why it has failed
};

struct BatchCounts {
  int64_t running = 0, waiting = 0;  // sequences
  int64_t cached_tokens = 0;         // the room that is in use
  int64_t reused_tokens = 0;         // of prompts
  int64_t guessed_tokens = 0, accepted_tokens = 0;
};

// add(), cancel() and counts() may be called on any thread, step() on one at a time.
class ContinuousBatch {
 public:
  ContinuousBatch(ModulePtr module, const BatchLimits& limits);
  ~ContinuousBatch();
  ContinuousBatch(const ContinuousBatch&) = delete;
  ContinuousBatch& operator=(const ContinuousBatch&) = delete;

  // The number of the sequence. Throws for a prompt that cannot fit, and for settings that it cannot follow.
  int64_t add(std::vector<int64_t> prompt, const GenerationSettings& settings);
  // Whether the sequence was there. A step under way on another thread may still give a token of it.
  bool cancel(int64_t sequence);
  // Empty where only prompts were computed, or nothing is left to do. An error of the model ends the sequences that
  // were computed.
  std::vector<NewToken> step();
  BatchCounts counts() const;

 private:
  class Running;
  std::unique_ptr<Running> running_;
};

}  // namespace accel::nn
