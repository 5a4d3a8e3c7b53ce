// SPDX-License-Identifier: Apache-2.0
#include "cli/models/completion_request.hpp"

#include <limits>
#include <utility>

#include "base/error.hpp"
#include "cli/models/api_error.hpp"
#include "cli/models/request_fields.hpp"

namespace accel::program {
namespace {

constexpr double kLargest = 9.0e15;  // of the integers that a double distinguishes
constexpr int64_t kDefaultCompletionTokens = 16;
constexpr size_t kMostStops = 4;
constexpr NumberRange kOneAnswer{1, 1, "1: each request gets one answer"};
constexpr NumberRange kTokenCount{1, kLargest, "an integer of at least 1"};
constexpr NumberRange kNoPenalty{0, 0, "0, or repetition_penalty, a number above 0"};

TokenSampling read_sampling(const RequestFields& fields) {
  TokenSampling sampling;
  sampling.temperature = fields.number("temperature", {0, 2, "a number from 0 to 2"}).value_or(sampling.temperature);
  constexpr double kSmallest = std::numeric_limits<double>::min();
  sampling.top_p = fields.number("top_p", {kSmallest, 1, "a number above 0, and at most 1"}).value_or(sampling.top_p);
  sampling.min_p = fields.number("min_p", {0, 1, "a number from 0 to 1"}).value_or(sampling.min_p);
  sampling.repetition_penalty =
      fields.number("repetition_penalty", {kSmallest, 1e6, "a number above 0"}).value_or(sampling.repetition_penalty);
  // Other servers write -1 for all tokens.
  const int64_t top_k = fields.integer("top_k", {-1, kLargest, "an integer of at least 0; 0: all tokens"}).value_or(0);
  sampling.top_k = top_k < 0 ? 0 : top_k;
  sampling.seed = fields.integer("seed", {0, kLargest, "an integer of at least 0"});
  fields.number("presence_penalty", kNoPenalty);
  fields.number("frequency_penalty", kNoPenalty);
  if (const Json* const bias = fields.find("logit_bias"); bias != nullptr) {
    if (bias->members() == nullptr) fields.refuse("logit_bias", "an object");
    if (!bias->members()->empty()) fields.refuse_unsupported("logit_bias", "none");
  }
  return sampling;
}

std::vector<std::string> read_stops(const RequestFields& fields) {
  constexpr const char* kExpected = "a string that is not empty, or a list of at most 4 of them";
  const Json* const value = fields.find("stop");
  if (value == nullptr) return {};
  std::vector<std::string> stops;
  const Json::Items one = {*value};
  const Json::Items& items = value->items() == nullptr ? one : *value->items();
  for (const Json& item : items) {
    if (item.text() == nullptr || item.text()->empty()) fields.refuse("stop", kExpected);
    stops.push_back(*item.text());
  }
  if (stops.size() > kMostStops) fields.refuse("stop", kExpected);
  return stops;
}

void read_common(const RequestFields& fields, CompletionRequest& request) {
  request.model = fields.text("model").value_or("");
  request.sampling = read_sampling(fields);
  request.stops = read_stops(fields);
  request.stream = fields.flag("stream", false);
  if (const std::optional<RequestFields> options = fields.object("stream_options")) {
    if (!request.stream) fields.refuse("stream_options", "\"stream\": true beside it");
    request.include_usage = options->flag("include_usage", false);
  }
  fields.integer("n", kOneAnswer);
}

// The contents of parts {"type": "text", "text": "..."} are one text for the template.
std::string text_of_parts(const Json::Items& parts, const std::string& name) {
  std::string joined;
  for (const Json& part : parts) {
    const Json* const type = part.members() == nullptr ? nullptr : json_member(part, "type");
    const Json* const words = part.members() == nullptr ? nullptr : json_member(part, "text");
    const bool is_text = type != nullptr && type->text() != nullptr && *type->text() == "text";
    if (!is_text || words == nullptr || words->text() == nullptr)
      throw ApiError(
          400, text(name, " has the part ", shown_json(part), R"(; expected {"type": "text", "text": "..."})"), name);
    joined += *words->text();
  }
  return joined;
}

Json read_message(const Json& message, size_t index) {
  const std::string name = text("messages[", index, "]");
  if (message.members() == nullptr)
    throw ApiError(400, text(name, " is ", shown_json(message), R"(; expected {"role": "...", "content": "..."})"),
                   name);
  const Json* const role = json_member(message, "role");
  if (role == nullptr || role->text() == nullptr || role->text()->empty())
    throw ApiError(400, name + ".role is not a string; expected \"system\", \"user\" or \"assistant\"", name + ".role");
  const Json* const content = json_member(message, "content");
  const bool has_calls = json_member(message, "tool_calls") != nullptr;
  if (content == nullptr ? !has_calls : content->text() == nullptr && content->items() == nullptr)
    throw ApiError(400,
                   text(name, ".content is ", content == nullptr ? "missing" : shown_json(*content),
                        "; expected a string, or a list of parts of text"),
                   name + ".content");
  Json::Members read;
  for (const auto& [key, value] : *message.members())
    read.emplace_back(key, key == "content" && value.items() != nullptr
                               ? Json(text_of_parts(*value.items(), name + ".content"))
                               : value);
  return Json(std::move(read));
}

std::vector<int64_t> read_tokens(const Json::Items& items) {
  std::vector<int64_t> tokens;
  for (const Json& item : items) {
    const std::optional<int64_t> token = item.integer();
    if (!token || *token < 0) return {};
    tokens.push_back(*token);
  }
  return tokens;
}

void read_prompt(const RequestFields& fields, CompletionRequest& request) {
  constexpr const char* kExpected = "a string, or a list of token ids; one prompt for a request";
  const Json* value = fields.find("prompt");
  if (value == nullptr) fields.refuse("prompt", kExpected);
  if (value->items() != nullptr && value->items()->size() == 1 && !value->items()->front().integer())
    value = &value->items()->front();
  if (value->text() != nullptr) {
    request.prompt = *value->text();
    return;
  }
  if (value->items() != nullptr) request.prompt_tokens = read_tokens(*value->items());
  if (request.prompt_tokens.empty()) fields.refuse("prompt", kExpected);
}

}  // namespace

CompletionRequest parse_completion(std::string_view body) {
  const RequestFields fields(body);
  CompletionRequest request;
  read_common(fields, request);
  read_prompt(fields, request);
  request.max_tokens = fields.integer("max_tokens", kTokenCount).value_or(kDefaultCompletionTokens);
  request.logprobs =
      fields.integer("logprobs", {0, 0, "0: the log-probabilities of the chosen tokens alone"}).has_value();
  fields.integer("best_of", kOneAnswer);
  if (fields.flag("echo", false)) fields.refuse_unsupported("echo", "false");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty())
    fields.refuse_unsupported("suffix", "none");
  return request;
}

CompletionRequest parse_chat_completion(std::string_view body) {
  const RequestFields fields(body);
  CompletionRequest request;
  request.is_chat = true;
  read_common(fields, request);
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || messages->items() == nullptr || messages->items()->empty())
    fields.refuse("messages", "a list of messages that is not empty");
  Json::Items read;
  for (const Json& message : *messages->items()) read.push_back(read_message(message, read.size()));
  request.messages = Json(std::move(read));
  const auto former = fields.integer("max_tokens", kTokenCount);  // the former name
  const auto present = fields.integer("max_completion_tokens", kTokenCount);
  request.max_tokens = present ? present : former;
  request.logprobs = fields.flag("logprobs", false);
  fields.integer("top_logprobs", {0, 0, "0: the log-probabilities of the chosen tokens alone"});
  for (const char* const name : {"tools", "functions"}) {
    const Json* const tools = fields.find(name);
    if (tools == nullptr) continue;
    if (tools->items() == nullptr) fields.refuse(name, "a list");
    if (!tools->items()->empty()) fields.refuse_unsupported(name, "none");
  }
  if (const auto format = fields.object("response_format"))
    if (format->text("type").value_or("") != "text")
      fields.refuse_unsupported("response_format", R"({"type": "text"})");
  return request;
}

}  // namespace accel::program
