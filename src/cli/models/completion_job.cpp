// SPDX-License-Identifier: Apache-2.0
#include "cli/models/completion_job.hpp"

#include <utility>

#include "cli/models/api_error.hpp"

namespace accel::program {
namespace {

cpp::Tensor prompt_of(const CompletionRequest& request, const cpp::Tokenizer& tokenizer) {
  if (request.is_chat) {
    cpp::ChatOptions options;
    options.add_generation_prompt = 1;
    return tokenizer.encode_chat(cpp::Value::from_json(print_json(request.messages)), options);
  }
  if (request.prompt) return tokenizer.encode(cpp::Value::bytes(*request.prompt));
  return cpp::Tensor::from_data(request.prompt_tokens.data(), {static_cast<std::int64_t>(request.prompt_tokens.size())},
                                ACCEL_DTYPE_INT64);
}

std::int64_t token_limit(const CompletionRequest& request, std::int64_t most_tokens) {
  const std::int64_t asked = request.max_tokens.value_or(most_tokens);
  if (asked <= most_tokens) return asked;
  throw ApiError(400, "max_tokens is " + std::to_string(asked) + "; expected at most " + std::to_string(most_tokens),
                 "max_tokens");
}

}  // namespace

int http_status(const cpp::Error& error) {
  switch (error.status()) {
    case ACCEL_ERROR_INVALID_ARGUMENT:
    case ACCEL_ERROR_SHAPE_MISMATCH:
    case ACCEL_ERROR_TYPE_MISMATCH:
    case ACCEL_ERROR_NOT_FOUND:
    case ACCEL_ERROR_UNSUPPORTED:
      return 400;
    default:
      return 500;
  }
}

void send_json(track::HttpReply& reply, int status, std::string json) {
  track::HttpAnswer answer{status, "application/json", std::move(json)};
  if (status == 429 || status == 503) answer.headers.emplace_back("Retry-After", "1");
  reply.send(std::move(answer));
}

CompletionJob::CompletionJob(CompletionRequest request, AnswerHead head, std::shared_ptr<track::HttpReply> reply,
                             std::shared_ptr<void> slot)
    : request_(std::move(request)),
      head_(head),
      events_(std::move(head)),
      reply_(std::move(reply)),
      slot_(std::move(slot)) {}

void CompletionJob::start(TextGenerator& generator, const cpp::Tokenizer& tokenizer, std::int64_t most_tokens) {
  reply_->on_disconnect([weak = weak_from_this()] {
    if (const auto job = weak.lock()) job->leave();
  });
  const cpp::Tensor prompt = prompt_of(request_, tokenizer);
  usage_.prompt_tokens = prompt.numel();
  GenerationSettings settings;
  settings.max_tokens = token_limit(request_, most_tokens);
  settings.sampling = request_.sampling;
  settings.stops = request_.stops;
  settings.has_scores = request_.logprobs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (has_left_) return;
  }
  const std::int64_t sequence = generator.add(
      prompt, settings, [job = shared_from_this()](const GenerationProgress& progress) { job->take(progress); });
  bool has_left = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    generator_ = &generator;
    sequence_ = sequence;
    has_left = has_left_;
  }
  if (has_left) generator.cancel(sequence);
}

void CompletionJob::take(const GenerationProgress& progress) {
  usage_.completion_tokens = progress.tokens;
  if (request_.stream) {
    stream(progress);
  } else {
    whole_.text += progress.added.text;
    whole_.scores.insert(whole_.scores.end(), progress.added.scores.begin(), progress.added.scores.end());
    whole_.finish_reason = progress.added.finish_reason;
    if (!progress.error.empty())
      send_json(*reply_, 500, ApiError(500, progress.error).json());
    else if (progress.has_ended)
      send_json(*reply_, 200, completion_answer(head_, whole_, usage_));
  }
  if (progress.has_ended) slot_.reset();
}

void CompletionJob::stream(const GenerationProgress& progress) {
  if (!has_begun_ && !progress.error.empty()) {
    send_json(*reply_, 500, ApiError(500, progress.error).json());
    return;
  }
  std::string events = has_begun_ ? "" : events_.first();
  if (!progress.error.empty()) {
    // Without [DONE] a client knows that the text is not complete.
    events += server_sent_event(parse_json(ApiError(500, progress.error).json(), "an error"));
  } else {
    // The reason of the end has an event of its own in a chat, as clients expect it.
    GeneratedText added = progress.added;
    if (head_.is_chat && progress.has_ended && (!added.text.empty() || !added.scores.empty())) {
      events += events_.next({std::move(added.text), std::move(added.scores), ""});
      added = {"", {}, progress.added.finish_reason};
    }
    events += events_.next(added);
    if (progress.has_ended) events += events_.last(usage_);
  }
  if (std::exchange(has_begun_, true))
    reply_->write(std::move(events));
  else
    reply_->begin({200, "text/event-stream", std::move(events)});
  if (progress.has_ended) reply_->end();
}

void CompletionJob::leave() {
  TextGenerator* generator = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_left_ = true;
    generator = generator_;
  }
  if (generator != nullptr) generator->cancel(sequence_);
}

}  // namespace accel::program
