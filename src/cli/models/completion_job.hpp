// SPDX-License-Identifier: Apache-2.0
// One request of a completion while it is answered: it becomes a sequence of the generator, whose text goes to the
// client. A client that leaves ends the sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "cli/models/completion_answer.hpp"
#include "cli/models/completion_request.hpp"
#include "cli/models/text_generator.hpp"
#include "http/server/http_reply.hpp"

namespace accel::program {

class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  // `slot` lives until the request is answered.
  CompletionJob(CompletionRequest request, AnswerHead head, std::shared_ptr<track::HttpReply> reply,
                std::shared_ptr<void> slot);

  // Adds the sequence. ApiError and cpp::Error refuse the request.
  void start(TextGenerator& generator, const cpp::Tokenizer& tokenizer, std::int64_t most_tokens);

 private:
  void take(const GenerationProgress& progress);
  void stream(const GenerationProgress& progress);
  void leave();

  const CompletionRequest request_;
  const AnswerHead head_;
  CompletionEvents events_;
  const std::shared_ptr<track::HttpReply> reply_;
  std::shared_ptr<void> slot_;
  TokenUsage usage_;
  GeneratedText whole_;
  bool has_begun_ = false;
  std::mutex mutex_;  // of what follows
  bool has_left_ = false;
  TextGenerator* generator_ = nullptr;
  std::int64_t sequence_ = -1;
};

// The HTTP status of an error of the library, by whose fault it is.
int http_status(const cpp::Error& error);

void send_json(track::HttpReply& reply, int status, std::string json);

}  // namespace accel::program
