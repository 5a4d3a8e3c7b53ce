// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/completions and /v1/chat/completions, whole or as the events of a stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"

namespace accel::program {

struct TokenScore {
  std::string text;
  double log_probability = 0;
};

// Text that a sequence has got.
struct GeneratedText {
  std::string text;
  std::vector<TokenScore> scores;  // of its tokens, if they were asked for
  std::string finish_reason;       // "stop" or "length"; "" while it goes on
};

struct TokenUsage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
};

struct AnswerHead {
  bool is_chat = false;
  std::string id;  // "chatcmpl-1"
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool has_scores = false;
  bool include_usage = false;
};

// The whole answer.
std::string completion_answer(const AnswerHead& head, const GeneratedText& generated, const TokenUsage& usage);

// Writes the events of one stream.
class CompletionEvents {
 public:
  explicit CompletionEvents(AnswerHead head) : head_(std::move(head)) {}

  std::string first();                               // the role of a chat; nothing for a completion
  std::string next(const GeneratedText& generated);  // and the reason of the end, if it has one
  std::string last(const TokenUsage& usage) const;   // the usage if it was asked for, and [DONE]

 private:
  Json chunk(Json choice) const;

  const AnswerHead head_;
  int64_t letters_ = 0;  // before the next text
};

// "data: ...\n\n"
std::string server_sent_event(const Json& data);

Json usage_json(const TokenUsage& usage);

}  // namespace accel::program
