// SPDX-License-Identifier: Apache-2.0
// Tokenizers and chat templates against what the reference implementations made: fixtures/make_tokenizer_fixtures.py.
// All are skipped without the plugin; tests/capi/test_tokenizer.c then checks the error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "os/file_bytes.hpp"
#include "os/plugin_file.hpp"
#include "text/tokenizer.hpp"

namespace accel::tokenizers {
namespace {

using accel::tests::expect_error;
using Ids = std::vector<int64_t>;

const Json& fixtures() {
  static const Json* const read = [] {
    const std::string path = std::string(ACCEL_TEST_FIXTURES) + "/tokenizers.json";
    return new Json(parse_json(FileBytes(path).text(), path));
  }();
  return *read;
}

const Json& member(const Json& object, const char* key) {
  const Json* const found = json_member(object, key);
  if (found == nullptr) fail(Status::kNotFound, "the fixture has no ", key);
  return *found;
}

std::string text_of(const Json& value) { return *value.text(); }

Ids ids_of(const Json& value) {
  Ids ids;
  for (const Json& item : *value.items()) {
    if (item.items() == nullptr)
      ids.push_back(*item.integer());
    else
      for (const Json& part : *item.items()) ids.push_back(*part.integer());
  }
  return ids;
}

std::vector<std::string> fixture_texts() {
  std::vector<std::string> texts;
  for (const Json& text : *member(fixtures(), "texts").items()) texts.push_back(text_of(text));
  return texts;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Json& fixture) {
  return Tokenizer::from_json(
      text_of(member(fixture, "tokenizer")),
      parse_tokenizer_config(text_of(member(fixture, "config")), "the fixture's configuration"));
}

std::shared_ptr<const Tokenizer> tokenizer_named(const std::string& name) {
  for (const Json& fixture : *member(fixtures(), "tokenizers").items())
    if (text_of(member(fixture, "name")) == name) return tokenizer_of(fixture);
  fail(Status::kNotFound, "no fixture ", name);
}

class Tokenizers : public testing::Test {
 protected:
  void SetUp() override {
    if (!plugin_path("tokenizers")) GTEST_SKIP() << "the plugin tokenizers is not built";
  }
};

// Calls check(fixture, tokenizer) for each kind.
template <typename Check>
void for_each_tokenizer(const Check& check) {
  for (const Json& fixture : *member(fixtures(), "tokenizers").items()) {
    SCOPED_TRACE(text_of(member(fixture, "name")));
    check(fixture, *tokenizer_of(fixture));
  }
}

void expect_ids(const Json& fixture, const char* key, const Tokenizer& tokenizer, const EncodeSettings& settings) {
  const std::vector<std::string> texts = fixture_texts();
  const Json::Items& expected = *member(fixture, key).items();
  ASSERT_EQ(expected.size(), texts.size());
  for (size_t i = 0; i < texts.size(); i++)
    EXPECT_EQ(tokenizer.encode({texts[i], std::nullopt}, settings), ids_of(expected[i])) << key << " of text " << i;
}

TEST_F(Tokenizers, GiveTheIdsOfTheReference) {
  for_each_tokenizer([](const Json& fixture, const Tokenizer& tokenizer) {
    expect_ids(fixture, "ids", tokenizer, {});
    EncodeSettings plain;
    plain.add_special_tokens.value = false;
    expect_ids(fixture, "plain_ids", tokenizer, plain);
    EncodeSettings of_strangers;
    of_strangers.parse_special_tokens.value = false;
    expect_ids(fixture, "split_ids", tokenizer, of_strangers);
    EXPECT_EQ(tokenizer.vocabulary_size(), member(fixture, "vocabulary_size").integer());
  });
}

TEST_F(Tokenizers, TruncateLikeTheReference) {
  for_each_tokenizer([](const Json& fixture, const Tokenizer& tokenizer) {
    EncodeSettings six;
    six.max_length.value = 6;
    expect_ids(fixture, "truncated_ids", tokenizer, six);
    expect_ids(fixture, "ids", tokenizer, {});  // the setting was of the call
  });
}

TEST_F(Tokenizers, EncodePairs) {
  const Json::Items& pairs = *member(fixtures(), "pairs").items();
  for_each_tokenizer([&pairs](const Json& fixture, const Tokenizer& tokenizer) {
    for (size_t i = 0; i < pairs.size(); i++) {
      const std::string first = text_of(pairs[i].items()->at(0)), second = text_of(pairs[i].items()->at(1));
      EncodeSettings settings;
      settings.token_type_ids.value = true;
      const EncodedBatch batch = tokenizer.encode_batch({{first, second}}, settings, 1);
      EXPECT_EQ(batch.input_ids, ids_of(member(fixture, "pair_ids").items()->at(i)));
      EXPECT_EQ(batch.token_type_ids, ids_of(member(fixture, "pair_types").items()->at(i)));
      settings.max_length.value = 7;
      EXPECT_EQ(tokenizer.encode({first, second}, settings),
                ids_of(member(fixture, "truncated_pair_ids").items()->at(i)));
    }
  });
}

TEST_F(Tokenizers, SayWhereTokensStand) {
  const std::vector<std::string> texts = fixture_texts();
  for_each_tokenizer([&texts](const Json& fixture, const Tokenizer& tokenizer) {
    EncodeSettings settings;
    settings.offsets.value = TextOffsets::kCodePoints;
    for (size_t i = 0; i < texts.size(); i++)
      EXPECT_EQ(tokenizer.encode_batch({{texts[i], std::nullopt}}, settings, 1).offsets,
                ids_of(member(fixture, "offsets").items()->at(i)));
  });
  EncodeSettings bytes;
  bytes.offsets.value = TextOffsets::kBytes;
  const EncodedBatch batch = tokenizer_named("word_piece")->encode_batch({{"Über it", std::nullopt}}, bytes, 1);
  EXPECT_EQ(batch.offsets[2], 0);
  EXPECT_EQ(batch.offsets[batch.offsets.size() - 3], 8) << "7 code points, and 8 bytes";
}

TEST_F(Tokenizers, PadBatches) {
  const std::vector<std::string> texts = fixture_texts();
  for_each_tokenizer([&texts](const Json& fixture, const Tokenizer& tokenizer) {
    std::vector<EncodedText> rows;
    for (size_t i = 0; i < 6; i++) rows.push_back({texts[i], std::nullopt});
    EncodeSettings settings;
    settings.pad_to_multiple_of.value = 8;
    if (!tokenizer.special_token_id("pad_token")) {
      expect_error(Status::kInvalidArgument, "set pad_token_id", [&] { tokenizer.encode_batch(rows, settings, 1); });
      settings.pad_token_id.value = 3;
      EXPECT_EQ(tokenizer.encode_batch(rows, settings, 1).length % 8, 0);
      return;
    }
    const EncodedBatch batch = tokenizer.encode_batch(rows, settings, 1);
    const Json& padded = member(fixture, "padded");
    EXPECT_EQ(batch.input_ids, ids_of(member(padded, "input_ids")));
    EXPECT_EQ(batch.attention_mask, ids_of(member(padded, "attention_mask")));
    const Json* const types = json_member(padded, "token_type_ids");
    if (types != nullptr && !batch.token_type_ids.empty()) {
      EXPECT_EQ(batch.token_type_ids, ids_of(*types));
    }
    EXPECT_EQ(batch.token_type_ids.empty(), tokenizer.model() != "WordPiece");
    EXPECT_EQ(batch.rows * batch.length, static_cast<int64_t>(batch.input_ids.size()));
  });
  EXPECT_EQ(tokenizer_named("unigram")->encode_batch({}, {}, 1).rows, 0);
}

TEST_F(Tokenizers, ShareBatchesAmongThreads) {
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; i++)
    texts.push_back("Text number " + std::to_string(i) + " of the brown fox, and what else there is to say of it.");
  std::vector<EncodedText> rows;
  for (const std::string& text : texts) rows.push_back({text, std::nullopt});
  const auto tokenizer = tokenizer_named("word_piece");
  EXPECT_EQ(tokenizer->encode_batch(rows, {}, 4).input_ids, tokenizer->encode_batch(rows, {}, 1).input_ids);
}

// Calls with other settings do not disturb each other.
TEST_F(Tokenizers, AreUsedByThreadsAtOnce) {
  const auto tokenizer = tokenizer_named("byte_level_split");
  const std::string text = "The quick brown fox jumps over the lazy dog.";
  EncodeSettings cut;
  cut.max_length.value = 5;
  const Ids whole = tokenizer->encode({text, std::nullopt}), shorter = tokenizer->encode({text, std::nullopt}, cut);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; thread++)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 200; i++)
        if (tokenizer->encode({text, std::nullopt}, thread % 2 == 0 ? cut : EncodeSettings()) !=
            (thread % 2 == 0 ? shorter : whole))
          wrong++;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Tokenizers, DecodeLikeTheReference) {
  for_each_tokenizer([](const Json& fixture, const Tokenizer& tokenizer) {
    const Json::Items& rows = *member(fixture, "ids").items();
    for (size_t i = 0; i < rows.size(); i++) {
      const Ids ids = ids_of(rows[i]);
      EXPECT_EQ(tokenizer.decode(ids.data(), ids.size()), text_of(member(fixture, "decoded").items()->at(i)));
      DecodeSettings settings;
      settings.skip_special_tokens.value = true;
      EXPECT_EQ(tokenizer.decode(ids.data(), ids.size(), settings),
                text_of(member(fixture, "decoded_without_special").items()->at(i)));
    }
  });
}

TEST_F(Tokenizers, DecodeStreams) {
  for (const Json& fixture : *member(fixtures(), "tokenizers").items()) {
    SCOPED_TRACE(text_of(member(fixture, "name")));
    const auto tokenizer = tokenizer_of(fixture);
    const Json::Items& rows = *member(fixture, "ids").items();
    DecodeStream stream(tokenizer);
    for (size_t row = 0; row < rows.size(); row++) {
      const Ids ids = ids_of(rows[row]);
      std::string whole, expected;
      for (size_t i = 0; i < ids.size(); i++) {
        const std::string added = stream.step(ids[i]);
        EXPECT_EQ(added, text_of(member(fixture, "streamed").items()->at(row).items()->at(i)))
            << "id " << i << " of text " << row;
        whole += added;
      }
      whole += stream.finish();
      DecodeSettings as_is;
      as_is.clean_up_spaces.value = false;
      EXPECT_EQ(whole, tokenizer->decode(ids.data(), ids.size(), as_is));
    }
  }
}

TEST_F(Tokenizers, StreamBytesThatAreNoCharacter) {
  const auto tokenizer = tokenizer_named("byte_fallback");
  DecodeStream stream(tokenizer);
  const int64_t byte = *tokenizer->token_to_id("<0xF0>");
  std::string text;
  for (int i = 0; i < 100; i++) text += stream.step(byte);
  EXPECT_FALSE(text.empty()) << "such bytes must not be kept for ever";
  text += stream.finish();
  EXPECT_EQ(text.size(), 300u) << "U+FFFD for each";
  stream.step(byte);
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd") << "a text that ends inside of a character";
  expect_error(Status::kInvalidArgument, "id is -1", [&] { stream.step(-1); });
  DecodeSettings cleaned;
  cleaned.clean_up_spaces.value = true;
  expect_error(Status::kInvalidArgument, "clean_up_spaces is 1", [&] { DecodeStream(tokenizer, cleaned); });
}

TEST_F(Tokenizers, KnowTheirTokens) {
  const auto tokenizer = tokenizer_named("word_piece");
  EXPECT_EQ(tokenizer->model(), "WordPiece");
  EXPECT_EQ(tokenizer->token_to_id("[CLS]"), 2);
  EXPECT_EQ(tokenizer->id_to_token(2), "[CLS]");
  EXPECT_EQ(tokenizer->token_to_id("not there"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(1 << 30), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer->special_token_id("pad_token"), 0);
  EXPECT_EQ(tokenizer->special_token_id("eos_token"), std::nullopt);
  const Ids above{1 << 30};
  EXPECT_EQ(tokenizer->decode(above.data(), 1), "");
}

TEST_F(Tokenizers, EncodeOddTexts) {
  for_each_tokenizer([](const Json& fixture, const Tokenizer& tokenizer) {
    EXPECT_EQ(tokenizer.encode({std::string_view("a\0b", 3), std::nullopt}), ids_of(member(fixture, "nul_ids")));
    expect_error(Status::kInvalidArgument, "the text is not UTF-8 at byte 2", [&] {
      tokenizer.encode({"ab\xff", std::nullopt});
    });
    expect_error(Status::kInvalidArgument, "text 1 is not UTF-8 at byte 0", [&] {
      tokenizer.encode_batch({{"fine", std::nullopt}, {"\xc3", std::nullopt}}, {}, 1);
    });
    EncodeSettings settings;
    settings.max_length.value = 1;
    if (tokenizer.model() == "WordPiece")
      expect_error(Status::kInvalidArgument, "max_length is 1; expected at least the 2 special tokens", [&] {
        tokenizer.encode({"a", std::nullopt}, settings);
      });
  });
}

TEST_F(Tokenizers, EncodeLongTexts) {
  std::string text;
  while (text.size() < 10'000'000) text += "The quick brown fox jumps over the lazy dog. ";
  const Ids ids = tokenizer_named("byte_level_split")->encode({text, std::nullopt});
  EXPECT_GT(ids.size(), text.size() / 20);
}

// A folder with these files.
std::string folder_with(const std::map<std::string, std::string>& files) {
  const std::string folder = testing::TempDir() + "tokenizer_" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/additional_chat_templates");
  for (const auto& [name, content] : files) std::ofstream(folder + "/" + name) << content;
  return folder;
}

TEST_F(Tokenizers, ReadFolders) {
  const std::string json = text_of(member(fixtures(), "chat_tokenizer"));
  const std::string folder = folder_with({
      {"tokenizer.json", json},
      {"tokenizer_config.json",
       R"({"bos_token": {"content": "<s>", "__type": "AddedToken"}, "model_max_length": 1e30, "padding_side": "left",
        "added_tokens_decoder": {"4": {"content": "<b>", "special": true}, "3": {"content": "<a>", "special": false}},
        "chat_template": [{"name": "default", "template": "d{{ bos_token }}"}, {"name": "tool_use", "template": "t"}]})"},
      {"special_tokens_map.json",
       R"({"eos_token": "</s>", "bos_token": "other", "additional_special_tokens": ["<c>"]})"},
      {"generation_config.json", R"({"eos_token_id": [1, 4]})"},
      {"additional_chat_templates/rag.jinja", "r{{ documents[0].title }}"},
  });
  const auto tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer->token_to_id("<a>"), 3);
  EXPECT_EQ(tokenizer->token_to_id("<b>"), 4);
  EXPECT_EQ(tokenizer->token_to_id("<c>"), 5);
  EXPECT_EQ(*tokenizer->config().special_token("bos_token"), "<s>");
  EXPECT_EQ(tokenizer->end_token_ids(), (Ids{1, 4}));
  EXPECT_EQ(tokenizer->config().model_max_length, std::nullopt);
  EXPECT_EQ(tokenizer->config().padding_side, PaddingSide::kLeft);
  ChatInputs inputs;
  inputs.messages = parse_json(R"([{"role": "user", "content": "x"}])", "messages");
  EXPECT_EQ(tokenizer->chat_text(inputs), "d<s>");
  EXPECT_EQ(tokenizer->encode_chat(inputs), tokenizer->encode({"d<s>", std::nullopt}));
  ChatSettings rag;
  rag.chat_template.value = "rag";
  inputs.documents = parse_json(R"([{"title": "y"}])", "documents");
  EXPECT_EQ(tokenizer->chat_text(inputs, rag), "ry");
  inputs.tools = parse_json("[{}]", "tools");
  EXPECT_EQ(tokenizer->chat_text(inputs), "t");
  rag.chat_template.value = "other";
  expect_error(Status::kNotFound, R"(no chat template "other"; expected one of "default", "rag", "tool_use")",
               [&] { tokenizer->chat_text(inputs, rag); });
  EXPECT_EQ(Tokenizer::load(folder + "/tokenizer.json")->config().chat_templates.size(), 0u);

  expect_error(Status::kUnsupported, "only tokenizer.model", [] {
    Tokenizer::load(folder_with({{"tokenizer.model", "x"}}));
  });
  expect_error(Status::kNotFound, "has no tokenizer.json", [] { Tokenizer::load(folder_with({})); });
  expect_error(Status::kNotFound, "/nowhere", [] { Tokenizer::load("/nowhere"); });
  std::filesystem::remove_all(folder);
}

TEST_F(Tokenizers, RefuseBrokenFiles) {
  const auto refuse = [](const std::string& json, const std::string& part) {
    expect_error(Status::kInvalidArgument, part, [&json] { Tokenizer::from_json(json, {}, "a file"); });
  };
  refuse("", "a file is not a tokenizer");
  refuse("{}", "a file is not a tokenizer");
  refuse(R"({"version": "1.0", "model": {"type": "Unheard", "vocab": {}}})", "a file is not a tokenizer");
  refuse(std::string(100'000, '['), "a file is not a tokenizer");
  std::string deep = "{\"type\":\"Lowercase\"}";
  for (int i = 0; i < 10'000; i++) deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
  refuse(
      R"({"version":"1.0","normalizer":)" + deep + R"(,"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}})",
      "a file is not a tokenizer");
  const std::string good = text_of(member(fixtures(), "chat_tokenizer"));
  refuse(good.substr(0, good.size() / 2), "a file is not a tokenizer");
  expect_error(Status::kInvalidArgument, "padding_side is \"up\"",
               [] { parse_tokenizer_config(R"({"padding_side": "up"})", "a file"); });
  expect_error(Status::kInvalidArgument, "added_tokens_decoder has the key \"x\"",
               [] { parse_tokenizer_config(R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "a file"); });
}

Json optional(const Json& chat, const char* key) {
  const Json* const found = json_member(chat, key);
  return found == nullptr ? Json() : *found;
}

TEST_F(Tokenizers, RenderChatsLikeTheReference) {
  const auto tokenizer = Tokenizer::from_json(
      text_of(member(fixtures(), "chat_tokenizer")),
      parse_tokenizer_config(R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})", "config"));
  int number = 0;
  for (const Json& chat : *member(fixtures(), "chats").items()) {
    SCOPED_TRACE("chat " + std::to_string(number++));
    ChatSettings settings;
    settings.chat_template.value = text_of(member(chat, "template"));
    settings.add_generation_prompt.value = json_flag(chat, "add_generation_prompt", false);
    settings.continue_final_message.value = json_flag(chat, "continue_final_message", false);
    const ChatInputs inputs{member(chat, "messages"), optional(chat, "tools"), optional(chat, "documents"),
                            optional(chat, "variables")};
    if (const Json* const expected = json_member(chat, "text")) {
      EXPECT_EQ(tokenizer->chat_text(inputs, settings), text_of(*expected));
    } else {
      const std::string error = json_text(chat, "error", "");
      expect_error(Status::kInvalidArgument, inputs.messages.items()->empty() ? "messages is empty" : error,
                   [&] { tokenizer->chat_text(inputs, settings); });
    }
  }
}

class ChatOf {
 public:
  ChatOf() : tokenizer_(Tokenizer::from_json(text_of(member(fixtures(), "chat_tokenizer")), {})) {
    inputs_.messages = parse_json(R"([{"role": "user", "content": "hi"}])", "messages");
  }
  std::string operator()(const std::string& chat_template) const {
    ChatSettings settings;
    settings.chat_template.value = chat_template;
    return tokenizer_->chat_text(inputs_, settings);
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatInputs inputs_;
};

TEST_F(Tokenizers, RefuseTemplates) {
  const ChatOf chat;
  const auto refuse = [&chat](const std::string& chat_template, const std::string& part) {
    expect_error(Status::kInvalidArgument, part, [&] { chat(chat_template); });
  };
  refuse("{% for m in messages %}", "line 1");
  refuse("a\n{{ messages[0].content.absent.more }}", "line 2");
  refuse("{{ raise_exception('no ' ~ messages[0].role ~ 's') }}", "no users");
  refuse(
      "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{{ i }}{% endfor %}{% "
      "endfor %}{% endfor %}",
      "may not end");
  refuse("{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(0) }}", "recursion");
  refuse("{{ 'x' * 10000000000 }}", "too much memory");
  refuse("{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
         "too much memory");
  refuse("{{ [[1]] | tojson(indent=4000000000) }}", "indent is 4000000000");
  refuse("{% include '/etc/passwd' %}", "");
  refuse("{{ messages.append(1) }}", "");
  refuse("{{ messages | unheard }}", "unheard");
  refuse(std::string(100'000, '(') + "{{" + std::string(100'000, '(') + "1", "");
  refuse("{{ unheard.attribute }}", "undefined");
}

TEST_F(Tokenizers, GiveTemplatesTheTime) {
  const ChatOf chat;
  const std::time_t now = std::time(nullptr);
  char year[8];
  std::strftime(year, sizeof year, "%Y", std::localtime(&now));
  const int found = std::stoi(chat("{{ strftime_now('%Y') }}"));
  EXPECT_TRUE(found == std::stoi(year) || found == std::stoi(year) + 1) << found;
  EXPECT_EQ(chat("{{ strftime_now('') }}{{ messages[0].content }}"), "hi");
}

}  // namespace
}  // namespace accel::tokenizers
