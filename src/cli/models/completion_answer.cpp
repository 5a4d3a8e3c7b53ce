// SPDX-License-Identifier: Apache-2.0
#include "cli/models/completion_answer.hpp"

#include <utility>

namespace accel::program {
namespace {

// A token that is a part of a letter is decoded to it.
constexpr std::string_view kNoLetter = "\xEF\xBF\xBD";

int64_t letters_of(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

Json bytes_of(const std::string& text) {
  if (text.find(kNoLetter) != std::string::npos) return {};
  Json::Items bytes;
  for (const char byte : text) bytes.push_back(Json::number(static_cast<int64_t>(static_cast<unsigned char>(byte))));
  return Json(std::move(bytes));
}

Json chat_scores(const std::vector<TokenScore>& scores) {
  Json::Items content;
  for (const TokenScore& score : scores)
    content.push_back(Json(Json::Members{{"token", Json(score.text)},
                                         {"logprob", Json::number(score.log_probability)},
                                         {"bytes", bytes_of(score.text)},
                                         {"top_logprobs", Json(Json::Items{})}}));
  return Json(Json::Members{{"content", Json(std::move(content))}, {"refusal", Json()}});
}

// `letters` stand before the first token.
Json completion_scores(const std::vector<TokenScore>& scores, int64_t letters) {
  Json::Items tokens, numbers, offsets;
  for (const TokenScore& score : scores) {
    tokens.emplace_back(score.text);
    numbers.push_back(Json::number(score.log_probability));
    offsets.push_back(Json::number(letters));
    letters += letters_of(score.text);
  }
  return Json(Json::Members{{"tokens", Json(std::move(tokens))},
                            {"token_logprobs", Json(std::move(numbers))},
                            {"top_logprobs", Json()},
                            {"text_offset", Json(std::move(offsets))}});
}

Json scores_json(const AnswerHead& head, const GeneratedText& generated, int64_t letters) {
  if (!head.has_scores) return {};
  return head.is_chat ? chat_scores(generated.scores) : completion_scores(generated.scores, letters);
}

Json reason_json(const GeneratedText& generated) {
  return generated.finish_reason.empty() ? Json() : Json(generated.finish_reason);
}

Json::Members object_json(const AnswerHead& head, bool is_chunk) {
  const char* object = head.is_chat ? is_chunk ? "chat.completion.chunk" : "chat.completion" : "text_completion";
  return {{"id", Json(head.id)},
          {"object", Json(object)},
          {"created", Json::number(head.created)},
          {"model", Json(head.model)}};
}

}  // namespace

Json usage_json(const TokenUsage& usage) {
  return Json(Json::Members{{"prompt_tokens", Json::number(usage.prompt_tokens)},
                            {"completion_tokens", Json::number(usage.completion_tokens)},
                            {"total_tokens", Json::number(usage.prompt_tokens + usage.completion_tokens)}});
}

std::string server_sent_event(const Json& data) { return "data: " + print_json(data) + "\n\n"; }

std::string completion_answer(const AnswerHead& head, const GeneratedText& generated, const TokenUsage& usage) {
  Json::Members choice = {{"index", Json::number(int64_t{0})}};
  if (head.is_chat)
    choice.emplace_back(
        "message",
        Json(Json::Members{{"role", Json("assistant")}, {"content", Json(generated.text)}, {"refusal", Json()}}));
  else
    choice.emplace_back("text", Json(generated.text));
  choice.emplace_back("logprobs", scores_json(head, generated, 0));
  choice.emplace_back("finish_reason", reason_json(generated));
  Json::Members answer = object_json(head, false);
  answer.emplace_back("choices", Json(Json::Items{Json(std::move(choice))}));
  answer.emplace_back("usage", usage_json(usage));
  return print_json(Json(std::move(answer)));
}

Json CompletionEvents::chunk(Json choice) const {
  Json::Members event = object_json(head_, true);
  event.emplace_back("choices", Json(Json::Items{std::move(choice)}));
  if (head_.include_usage) event.emplace_back("usage", Json());
  return Json(std::move(event));
}

std::string CompletionEvents::first() {
  if (!head_.is_chat) return "";
  return server_sent_event(
      chunk(Json(Json::Members{{"index", Json::number(int64_t{0})},
                               {"delta", Json(Json::Members{{"role", Json("assistant")}, {"content", Json("")}})},
                               {"logprobs", Json()},
                               {"finish_reason", Json()}})));
}

std::string CompletionEvents::next(const GeneratedText& generated) {
  Json::Members choice = {{"index", Json::number(int64_t{0})}};
  if (!head_.is_chat)
    choice.emplace_back("text", Json(generated.text));
  else if (generated.text.empty())
    choice.emplace_back("delta", Json(Json::Members{}));
  else
    choice.emplace_back("delta", Json(Json::Members{{"content", Json(generated.text)}}));
  choice.emplace_back("logprobs", scores_json(head_, generated, letters_));
  choice.emplace_back("finish_reason", reason_json(generated));
  for (const TokenScore& score : generated.scores) letters_ += letters_of(score.text);
  return server_sent_event(chunk(Json(std::move(choice))));
}

std::string CompletionEvents::last(const TokenUsage& usage) const {
  std::string events;
  if (head_.include_usage) {
    Json::Members event = object_json(head_, true);
    event.emplace_back("choices", Json(Json::Items{}));
    event.emplace_back("usage", usage_json(usage));
    events = server_sent_event(Json(std::move(event)));
  }
  return events + "data: [DONE]\n\n";
}

}  // namespace accel::program
