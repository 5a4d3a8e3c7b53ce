// SPDX-License-Identifier: Apache-2.0
// Answers and events of completions and embeddings, and the ends of texts by strings.
#include "cli/models/completion_answer.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "cli/models/embedding_answer.hpp"
#include "cli/models/stop_text.hpp"

namespace accel::program {
namespace {

AnswerHead head_of(bool is_chat) {
  AnswerHead head;
  head.is_chat = is_chat;
  head.id = "x-1";
  head.model = "m";
  head.created = 5;
  return head;
}

TEST(CompletionAnswer, IsWhole) {
  EXPECT_EQ(
      completion_answer(head_of(false), {"a \"b\"", {}, "length"}, {3, 2}),
      R"({"id":"x-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a \"b\"",)"
      R"("logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}})");
  EXPECT_EQ(completion_answer(head_of(true), {"a", {}, "stop"}, {3, 2}),
            R"({"id":"x-1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":)"
            R"("assistant","content":"a","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":)"
            R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}})");
}

TEST(CompletionAnswer, HasLogProbabilities) {
  AnswerHead head = head_of(false);
  head.has_scores = true;
  const GeneratedText generated = {"éb", {{"é", -0.5}, {"b", -1}}, "stop"};
  EXPECT_NE(
      completion_answer(head, generated, {})
          .find(
              R"("logprobs":{"tokens":["é","b"],"token_logprobs":[-0.5,-1.0],"top_logprobs":null,"text_offset":[0,1]})"),
      std::string::npos)
      << completion_answer(head, generated, {});
  head.is_chat = true;
  EXPECT_NE(completion_answer(head, generated, {})
                .find(R"("logprobs":{"content":[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[]},)"),
            std::string::npos);
  EXPECT_NE(completion_answer(head, {"", {{"\xEF\xBF\xBD", -1}}, "stop"}, {}).find(R"("bytes":null)"),
            std::string::npos);
}

TEST(CompletionAnswer, StreamsChats) {
  AnswerHead head = head_of(true);
  head.include_usage = true;
  CompletionEvents events(head);
  const std::string begin = R"(data: {"id":"x-1","object":"chat.completion.chunk","created":5,"model":"m","choices":[)";
  EXPECT_EQ(events.first(), begin + R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                                    R"("finish_reason":null}],"usage":null})"
                                    "\n\n");
  EXPECT_EQ(events.next({"a\n", {}, ""}),
            begin + R"({"index":0,"delta":{"content":"a\n"},"logprobs":null,"finish_reason":null}],"usage":null})"
                    "\n\n");
  EXPECT_EQ(events.next({"", {}, "stop"}),
            begin + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null})"
                    "\n\n");
  EXPECT_EQ(events.last({1, 2}), begin + R"(],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}})"
                                         "\n\ndata: [DONE]\n\n");
}

TEST(CompletionAnswer, StreamsCompletions) {
  AnswerHead head = head_of(false);
  head.has_scores = true;
  CompletionEvents events(head);
  EXPECT_EQ(events.first(), "");
  EXPECT_NE(events.next({"é", {{"é", -1}}, ""}).find("\"text_offset\":[0]"), std::string::npos);
  EXPECT_NE(events.next({"b", {{"b", -1}}, ""}).find("\"text_offset\":[1]"), std::string::npos);
  EXPECT_EQ(events.last({}), "data: [DONE]\n\n");
}

TEST(CompletionAnswer, HasEmbeddings) {
  EXPECT_EQ(embedding_answer("m", {{0.1F, -2}}, false, 4),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2]}],"model":"m","usage":)"
            R"({"prompt_tokens":4,"total_tokens":4}})");
  EXPECT_NE(embedding_answer("m", {{1.0F, -2.0F}}, true, 4).find(R"("embedding":"AACAPwAAAMA=")"), std::string::npos);
  EXPECT_THROW(embedding_json({std::numeric_limits<float>::quiet_NaN()}), Error);
  const char* const expected[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t length = 0; length <= 6; ++length)
    EXPECT_EQ(base64_of(std::string_view("foobar").substr(0, length)), expected[length]);
}

std::string stopped(const std::vector<std::string>& stops, const std::string& text, size_t step, bool& has_stopped) {
  StopText stop(stops);
  std::string result;
  for (size_t at = 0; at < text.size(); at += step) result += stop.add(std::string_view(text).substr(at, step));
  has_stopped = stop.has_stopped();
  return result + stop.finish();
}

TEST(CompletionAnswer, StopsHoweverTheTextIsCut) {
  const std::vector<std::string> stops = {"aab", "END"};
  for (size_t step = 1; step < 8; ++step) {
    bool has_stopped = false;
    EXPECT_EQ(stopped(stops, "xaaaabyEND", step, has_stopped), "xaa");
    EXPECT_TRUE(has_stopped);
    EXPECT_EQ(stopped(stops, "no end EN", step, has_stopped), "no end EN");
    EXPECT_FALSE(has_stopped);
    EXPECT_EQ(stopped({}, "aab", step, has_stopped), "aab");
  }
  StopText stop(stops);
  EXPECT_EQ(stop.add("x E"), "x ");
  EXPECT_EQ(stop.add("N"), "");
  EXPECT_EQ(stop.add("d"), "ENd");
  EXPECT_EQ(stop.add("END"), "");
  EXPECT_EQ(stop.add("more"), "");
}

}  // namespace
}  // namespace accel::program
