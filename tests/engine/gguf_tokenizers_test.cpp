// SPDX-License-Identifier: Apache-2.0
// Tokenizers of GGUF files: the ids, texts and chats of transformers (make_gguf_tokenizer_fixtures.py). Those that
// encode are skipped without the plugin.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bigmodel/model_tokenizer.hpp"
#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "nn_fixture.hpp"
#include "os/plugin_file.hpp"
#include "report/temporary_folder.hpp"
#include "text/gguf/gguf_tokenizer.hpp"
#include "text/gguf/gguf_vocabulary.hpp"
#include "text/tokenizer.hpp"

namespace accel::bigmodel {
namespace gguf_tokenizers_test {

using tests::bytes_of;
using tests::expect_error;
using tests::integers;
using tokenizers::describe_gguf_tokenizer;
using tokenizers::Tokenizer;

const Json& fixture() {
  static const Json* const read = new Json(tests::read_fixture("gguf_tokenizers.json"));
  return *read;
}

const Json::Items& recorded_tokenizers() { return *json_member(fixture(), "tokenizers")->items(); }

class GgufTokenizers : public testing::Test {
 protected:
  void SetUp() override {
    if (!plugin_path("tokenizers")) GTEST_SKIP() << "the plugin tokenizers is not built";
  }
  std::string write(const Json& recorded) {
    const std::string path = folder_.path() + "/model.gguf";
    std::ofstream(path, std::ios::binary) << bytes_of(*json_member(recorded, "file"));
    return path;
  }
  template <typename Check>
  void for_each_file(const Check& check) {
    for (const Json& recorded : recorded_tokenizers()) {
      SCOPED_TRACE(json_text(recorded, "name", ""));
      check(recorded, *load_model_tokenizer(write(recorded)));
    }
  }

  tests::TemporaryFolder folder_;
};

void expect_ids(const Json& recorded, const char* key, const Tokenizer& tokenizer, const EncodeSettings& settings) {
  const Json::Items& texts = *json_member(fixture(), "texts")->items();
  const Json::Items& expected = *json_member(recorded, key)->items();
  ASSERT_EQ(texts.size(), expected.size());
  for (size_t i = 0; i < texts.size(); i++)
    EXPECT_EQ(tokenizer.encode({*texts[i].text(), std::nullopt}, settings), integers(expected[i]))
        << key << " of \"" << *texts[i].text() << '"';
}

TEST_F(GgufTokenizers, GiveTheIdsOfTheReference) {
  for_each_file([](const Json& recorded, const Tokenizer& tokenizer) {
    expect_ids(recorded, "ids", tokenizer, {});
    EncodeSettings plain, of_strangers;
    plain.add_special_tokens.value = false;
    expect_ids(recorded, "plain_ids", tokenizer, plain);
    of_strangers.parse_special_tokens.value = false;
    expect_ids(recorded, "split_ids", tokenizer, of_strangers);
    EXPECT_EQ(tokenizer.encode({"the dog", "lazy"}), integers(*json_member(recorded, "pair_ids")));
  });
}

TEST_F(GgufTokenizers, DecodeLikeTheReference) {
  for_each_file([](const Json& recorded, const Tokenizer& tokenizer) {
    const Json::Items& rows = *json_member(recorded, "ids")->items();
    DecodeSettings plain;
    plain.skip_special_tokens.value = true;
    for (size_t i = 0; i < rows.size(); i++) {
      const std::vector<int64_t> ids = integers(rows[i]);
      EXPECT_EQ(tokenizer.decode(ids.data(), ids.size()), *json_member(recorded, "decoded")->items()->at(i).text());
      EXPECT_EQ(tokenizer.decode(ids.data(), ids.size(), plain),
                *json_member(recorded, "decoded_without_special")->items()->at(i).text());
    }
  });
}

TEST_F(GgufTokenizers, KnowTheirRolesTemplatesAndLength) {
  for_each_file([](const Json& recorded, const Tokenizer& tokenizer) {
    tokenizers::ChatInputs inputs;
    inputs.messages = *json_member(fixture(), "messages");
    EXPECT_EQ(tokenizer.chat_text(inputs), json_text(recorded, "chat", ""));
    EXPECT_EQ(tokenizer.config().model_max_length, 77);
    EXPECT_EQ(tokenizer.end_token_ids(), std::vector<int64_t>{*tokenizer.special_token_id("eos_token")});
    EXPECT_TRUE(tokenizer.special_token_id("bos_token").has_value());
  });
}

// Every pattern is a regular expression that the plugin compiles.
TEST_F(GgufTokenizers, CutByEachKnownPreTokenizer) {
  for (const char* const name : {"default", "gpt-2", "phi-2", "llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx",
                                 "smaug-bpe", "qwen2", "deepseek-r1-qwen", "tekken", "smollm", "starcoder", "refact"}) {
    SCOPED_TRACE(name);
    const Json metadata = parse_json(
        R"({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b", "ab", "1", "11"],
            "tokenizer.ggml.merges": ["a b", "1 1"], "tokenizer.ggml.add_bos_token": false, "tokenizer.ggml.pre": ")" +
            std::string(name) + "\"}",
        "metadata");
    const auto described = describe_gguf_tokenizer(metadata, "model.gguf");
    const auto tokenizer = Tokenizer::from_json(print_json(described.description), described.config);
    const std::string cuts_digits = "qwen2 deepseek-r1-qwen tekken smollm starcoder refact";
    const bool is_cut = cuts_digits.find(name) != std::string::npos;
    EXPECT_EQ(tokenizer->encode({"ab11", std::nullopt}),
              (is_cut ? std::vector<int64_t>{2, 3, 3} : std::vector<int64_t>{2, 4}));
  }
}

TEST_F(GgufTokenizers, HaveNoMoreTokensThanRows) {
  const Json models = tests::read_fixture("gguf_models.json");
  std::string bytes = bytes_of(*json_member(models.items()->front(), "file"));
  const std::string path = folder_.path() + "/model.gguf", table = "token_embd.weight";
  // The name, 2 dimensions, the columns, the rows.
  const size_t rows = bytes.find(table) + table.size() + 4 + 8;
  ASSERT_EQ(bytes[rows], 48);
  bytes[rows] = 32;
  std::ofstream(path, std::ios::binary) << bytes;
  expect_error(Status::kCorrupt, "has 48 tokens, and 32 rows in token_embd.weight",
               [&] { load_model_tokenizer(path); });
}

Json metadata_with(const std::string& more) {
  return parse_json(R"({"tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "abb"],
      "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1], )" +
                        more + "}",
                    "metadata");
}

constexpr char kByteLevel[] = R"("tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", )";
constexpr char kSentencePiece[] = R"("tokenizer.ggml.model": "llama", "tokenizer.ggml.bos_token_id": 1, )";
constexpr char kScores[] = R"("tokenizer.ggml.scores": [0, 0, 0, -7, -8, -1, -2])";

TEST(GgufVocabularies, DeriveMergesFromScores) {
  const auto vocabulary =
      tokenizers::read_sentence_piece_vocabulary(metadata_with(std::string(kSentencePiece) + kScores), "model.gguf");
  const std::vector<std::pair<std::string, std::string>> expected = {{"a", "b"}, {"ab", "b"}};
  EXPECT_EQ(vocabulary.merges, expected);
}

TEST(GgufVocabularies, KnowTokensThatEndAnAnswer) {
  const Json metadata = parse_json(R"({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
      "tokenizer.ggml.tokens": ["a", "<|im_end|>", "<|end|>", "<x>", ""], "tokenizer.ggml.token_type": [1, 3, 1, 3, 5],
      "tokenizer.ggml.merges": [], "tokenizer.ggml.eot_token_id": 3})",
                                   "metadata");
  // The token 2 is no control token, only a word.
  EXPECT_EQ(describe_gguf_tokenizer(metadata, "model.gguf").config.end_token_ids, (std::vector<int64_t>{3, 1}));
}

TEST(GgufVocabularies, RefuseWhatIsBroken) {
  const auto refused = [](Status status, const std::string& part, const std::string& more) {
    SCOPED_TRACE(more);
    expect_error(status, part, [&] { describe_gguf_tokenizer(metadata_with(more), "model.gguf"); });
  };
  const std::string level = kByteLevel, pieces = std::string(kSentencePiece);
  refused(Status::kNotFound, "'model.gguf' has no tokenizer", R"("a": 1)");
  refused(Status::kUnsupported, "tokenizer.ggml.model 't5'; expected gpt2 or llama", R"("tokenizer.ggml.model": "t5")");
  refused(Status::kCorrupt, "is broken: JSON member 'tokenizer.ggml.model' is 3", R"("tokenizer.ggml.model": 3)");
  refused(Status::kUnsupported, "the tokenizer.ggml.pre 'odd'; expected one of default, gpt-2,",
          R"("tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": [], "tokenizer.ggml.pre": "odd")");
  refused(Status::kUnsupported, "lacks tokenizer.ggml.pre",
          R"("tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": [])");
  refused(Status::kCorrupt, "it lacks tokenizer.ggml.merges", level + R"("a": 1)");
  refused(Status::kCorrupt, "tokenizer.ggml.merges is not an array", level + R"("tokenizer.ggml.merges": "a b")");
  refused(Status::kCorrupt, "tokenizer.ggml.merges has an item that is not a text",
          level + R"("tokenizer.ggml.merges": [1])");
  refused(Status::kCorrupt, "the merge \"ab\" is not two tokens", level + R"("tokenizer.ggml.merges": ["ab"])");
  refused(Status::kCorrupt, "the merge \"a c\" needs \"c\", which is not",
          level + R"("tokenizer.ggml.merges": ["a c"])");
  refused(Status::kCorrupt, "the merge \"b a\" needs \"ba\", which is not",
          level + R"("tokenizer.ggml.merges": ["b a"])");
  refused(Status::kCorrupt, "it lacks tokenizer.ggml.scores", pieces + R"("a": 1)");
  refused(Status::kCorrupt, "tokenizer.ggml.scores has 2 items; expected one for each of 7 tokens",
          pieces + R"("tokenizer.ggml.scores": [0, 1])");
  refused(Status::kCorrupt, "tokenizer.ggml.scores of token 3 is not a finite number",
          pieces + R"("tokenizer.ggml.scores": [0, 0, 0, "nan", 0, 0, 0])");
  refused(Status::kCorrupt, "tokenizer.ggml.eos_token_id is not the id of one of its 7 tokens",
          pieces + kScores + R"(, "tokenizer.ggml.eos_token_id": 7)");
  refused(Status::kCorrupt, "tokenizer.ggml.padding_token_id is not the id",
          pieces + kScores + R"(, "tokenizer.ggml.padding_token_id": -1)");
  refused(Status::kCorrupt, "tokenizer.ggml.add_bos_token is not false, and the file has no bos_token",
          R"("tokenizer.ggml.model": "llama", )" + std::string(kScores));
  refused(Status::kCorrupt, "tokenizer.ggml.add_eos_token is true, and the file has no eos_token",
          pieces + kScores + R"(, "tokenizer.ggml.add_eos_token": true)");
  refused(Status::kCorrupt, "'tokenizer.ggml.add_bos_token' is 1",
          pieces + kScores + R"(, "tokenizer.ggml.add_bos_token": 1)");
  refused(Status::kUnsupported, "remove_extra_whitespaces true",
          pieces + kScores + R"(, "tokenizer.ggml.remove_extra_whitespaces": true)");
  const auto refused_tokens = [](const std::string& part, const std::string& arrays) {
    SCOPED_TRACE(arrays);
    const Json metadata = parse_json(R"({"tokenizer.ggml.model": "llama", )" + arrays + "}", "metadata");
    expect_error(Status::kCorrupt, part, [&] { describe_gguf_tokenizer(metadata, "model.gguf"); });
  };
  refused_tokens("it lacks tokenizer.ggml.tokens", R"("a": 1)");
  refused_tokens("tokenizer.ggml.tokens is empty", R"("tokenizer.ggml.tokens": [])");
  refused_tokens("tokenizer.ggml.tokens has an item that is not a text", R"("tokenizer.ggml.tokens": ["a", 2])");
  refused_tokens("the tokens 0 and 2 are both \"a\"", R"("tokenizer.ggml.tokens": ["a", "b", "a"])");
  refused_tokens("tokenizer.ggml.token_type has 1 items; expected one for each of 2 tokens",
                 R"("tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1])");
  refused_tokens("tokenizer.ggml.token_type of token 1 is not an integer from 0 to 6",
                 R"("tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1, 7])");
  refused_tokens("token 0 has 600 bytes; expected at most 512",
                 R"("tokenizer.ggml.scores": [0], "tokenizer.ggml.tokens": [")" + std::string(600, 'a') + R"("])");
}

}  // namespace gguf_tokenizers_test
}  // namespace accel::bigmodel
