// SPDX-License-Identifier: Apache-2.0
// Requests of completions, chats and embeddings: fields, defaults, and refusals that name the field.
#include "cli/models/completion_request.hpp"

#include <gtest/gtest.h>

#include "cli/models/api_error.hpp"
#include "cli/models/embedding_request.hpp"
#include "cli/models/request_fields.hpp"

namespace accel::program {
namespace {

template <typename Parse>
ApiError refusal_by(Parse parse, const std::string& body) {
  try {
    parse(body);
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << body << " was taken";
  return ApiError(0, "");
}

ApiError refusal_of(const std::string& body) { return refusal_by(parse_completion, body); }
ApiError refusal_of_chat(const std::string& body) { return refusal_by(parse_chat_completion, body); }
ApiError refusal_of_embedding(const std::string& body) { return refusal_by(parse_embedding, body); }

TEST(CompletionRequest, HasDefaults) {
  const CompletionRequest request = parse_completion(R"({"prompt": "Hi", "model": null, "some_field": [1, {}]})");
  EXPECT_EQ(request.prompt, "Hi");
  EXPECT_EQ(request.model, "");
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_FALSE(request.stream || request.logprobs || request.include_usage || request.is_chat);
}

TEST(CompletionRequest, ReadsEveryField) {
  const CompletionRequest request = parse_completion(
      R"({"prompt": ["Hi"], "model": "m", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
          "repetition_penalty": 1.5, "seed": 7, "stop": ["a", "b"], "stream": true, "logprobs": 0, "n": 1, "best_of": 1,
          "stream_options": {"include_usage": true}, "presence_penalty": 0, "logit_bias": {}, "echo": false, "suffix": ""})");
  EXPECT_EQ(request.prompt, "Hi");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 3);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.sampling.seed, 7);
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.stream && request.logprobs && request.include_usage);
  EXPECT_EQ(parse_completion(R"({"prompt": [1, 2]})").prompt_tokens, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(parse_completion(R"({"prompt": [[3]], "stop": "x", "top_k": -1})").prompt_tokens,
            (std::vector<int64_t>{3}));
}

TEST(CompletionRequest, RefusesWhatItCannotRead) {
  for (const char* const body : {"", "x", "[]", "{", "1", "{\"prompt\": \"a\"} x"})
    EXPECT_EQ(refusal_of(body).status(), 400);
  EXPECT_EQ(refusal_of(std::string(5000, '[')).status(), 400);
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": ["a", "b"]})", "prompt"},
      {R"({"prompt": [1, -1]})", "prompt"},
      {R"({"prompt": [1.5]})", "prompt"},
      {R"({"prompt": "a", "model": 3})", "model"},
      {R"({"prompt": "a", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "a", "temperature": 3})", "temperature"},
      {R"({"prompt": "a", "temperature": true})", "temperature"},
      {R"({"prompt": "a", "top_p": 0})", "top_p"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 1e300})", "max_tokens"},
      {R"({"prompt": "a", "n": 2})", "n"},
      {R"({"prompt": "a", "best_of": 2})", "best_of"},
      {R"({"prompt": "a", "seed": -1})", "seed"},
      {R"({"prompt": "a", "stop": ""})", "stop"},
      {R"({"prompt": "a", "stop": ["a", "b", "c", "d", "e"]})", "stop"},
      {R"({"prompt": "a", "stop": [1]})", "stop"},
      {R"({"prompt": "a", "stream": "yes"})", "stream"},
      {R"({"prompt": "a", "stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": 1}})", "stream_options.include_usage"},
      {R"({"prompt": "a", "logprobs": 2})", "logprobs"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs"},
      {R"({"prompt": "a", "presence_penalty": 1})", "presence_penalty"},
      {R"({"prompt": "a", "logit_bias": {"5": 1}})", "logit_bias"},
      {R"({"prompt": "a", "echo": true})", "echo"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix"}};
  for (const auto& [body, field] : cases) {
    const ApiError error = refusal_of(body);
    EXPECT_EQ(error.status(), 400) << body;
    EXPECT_EQ(error.param(), field) << body;
    EXPECT_NE(std::string(error.what()).find("expected"), std::string::npos) << error.what();
  }
}

TEST(CompletionRequest, ErrorsHaveTheFormOfTheApi) {
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "temperature": 3})").json(),
            R"({"error":{"message":"temperature is 3; expected a number from 0 to 2","type":"invalid_request_error",)"
            R"("param":"temperature","code":null}})");
  EXPECT_EQ(ApiError(429, "busy", "", "x").json(),
            R"({"error":{"message":"busy","type":"rate_limit_error","param":null,"code":"x"}})");
}

TEST(CompletionRequest, CutsLongValuesBetweenLetters) {
  std::string letters;
  for (int i = 0; i < 100; ++i) letters += "é";
  const std::string shown = shown_json(Json(letters));
  EXPECT_LT(shown.size(), 70U);
  EXPECT_EQ(shown.substr(shown.size() - 5), "é...");
}

TEST(CompletionRequest, ReadsChats) {
  const CompletionRequest request = parse_chat_completion(
      R"({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "name": "x", "content":
          [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "max_tokens": 3, "max_completion_tokens": 5,
          "logprobs": true, "tools": [], "response_format": {"type": "text"}})");
  EXPECT_TRUE(request.is_chat && request.logprobs);
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(print_json(request.messages),
            R"([{"role":"system","content":"Be kind."},{"role":"user","name":"x","content":"ab"}])");
  EXPECT_FALSE(parse_chat_completion(R"({"messages": [{"role": "user", "content": "a"}]})").max_tokens.has_value());
}

TEST(CompletionRequest, RefusesChatsThatItCannotRead) {
  const std::string good = R"("messages": [{"role": "user", "content": "a"}])";
  const std::pair<std::string, const char*> cases[] = {
      {"{}", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": "a"})", "messages"},
      {R"({"messages": ["a"]})", "messages[0]"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
       "messages[0].content"},
      {"{" + good + R"(, "tools": [{"type": "function"}]})", "tools"},
      {"{" + good + R"(, "tools": 1})", "tools"},
      {"{" + good + R"(, "logprobs": 1})", "logprobs"},
      {"{" + good + R"(, "top_logprobs": 3})", "top_logprobs"},
      {"{" + good + R"(, "max_completion_tokens": -1})", "max_completion_tokens"},
      {"{" + good + R"(, "response_format": {"type": "json_object"}})", "response_format"}};
  for (const auto& [body, field] : cases) {
    const ApiError error = refusal_of_chat(body);
    EXPECT_EQ(error.status(), 400) << body;
    EXPECT_EQ(error.param(), field) << body;
  }
}

TEST(CompletionRequest, ReadsInputsOfEmbeddings) {
  EXPECT_EQ(parse_embedding(R"({"input": "a"})").texts, (std::vector<std::string>{"a"}));
  const EmbeddingRequest texts =
      parse_embedding(R"({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4})");
  EXPECT_EQ(texts.texts.size(), 2U);
  EXPECT_TRUE(texts.in_base64);
  EXPECT_EQ(texts.dimensions, 4);
  EXPECT_EQ(parse_embedding(R"({"input": [1, 2]})").tokens, (std::vector<std::vector<int64_t>>{{1, 2}}));
  EXPECT_EQ(parse_embedding(R"({"input": [[1], [2]]})").tokens.size(), 2U);
  for (const char* const body :
       {"{}", R"({"input": ""})", R"({"input": []})", R"({"input": [""]})", R"({"input": [[]]})",
        R"({"input": ["a", [1]]})", R"({"input": {}})", R"({"input": [1, "a"]})"})
    EXPECT_EQ(refusal_of_embedding(body).param(), "input") << body;
  EXPECT_EQ(refusal_of_embedding(R"({"input": "a", "encoding_format": "hex"})").param(), "encoding_format");
  std::string many = R"({"input": ["a")";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(refusal_of_embedding(many + "]}").param(), "input");
}

}  // namespace
}  // namespace accel::program
