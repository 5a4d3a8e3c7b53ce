// SPDX-License-Identifier: Apache-2.0
// Requests of /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"

namespace accel::program {

// How tokens are chosen. Fields that OpenAI does not have are those of other servers.
struct TokenSampling {
  double temperature = 1;  // 0: the most likely token
  double top_p = 1;
  int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  std::optional<int64_t> seed;
};

struct CompletionRequest {
  bool is_chat = false;
  std::string model;  // "": any
  // One of these three.
  std::optional<std::string> prompt;
  std::vector<int64_t> prompt_tokens;
  Json messages;  // of a chat: each has "role", and "content" as text or null

  std::optional<int64_t> max_tokens;
  TokenSampling sampling;
  std::vector<std::string> stops;
  bool logprobs = false;
  bool stream = false;
  bool include_usage = false;  // at the end of a stream
};

// ApiError 400 names the field that is wrong, or that asks for what this server does not have.
CompletionRequest parse_completion(std::string_view body);
CompletionRequest parse_chat_completion(std::string_view body);

}  // namespace accel::program
