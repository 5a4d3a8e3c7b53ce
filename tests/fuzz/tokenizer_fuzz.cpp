// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json, as the files beside it, or as a chat template, by the first byte: an error of one
// line, or a tokenizer that encodes a text and decodes any ids. Does nothing without the plugin.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "fuzz_target.hpp"
#include "json/json.hpp"
#include "os/plugin_file.hpp"
#include "text/tokenizer.hpp"

namespace tokenizer_fuzz {

using namespace accel;
using namespace accel::tokenizers;

namespace {

constexpr char kSmallest[] =
    R"({"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0,"[UNK]":1},"unk_token":"[UNK]"}})";

void use(const Tokenizer& tokenizer) {
  EncodeSettings settings;
  settings.offsets.value = TextOffsets::kCodePoints;
  settings.pad_token_id.value = 0;
  const EncodedBatch batch = tokenizer.encode_batch({{"a text", std::nullopt}, {"Ünïcödé 日本", "b"}}, settings, 1);
  check(batch.input_ids.size() == batch.attention_mask.size() && batch.offsets.size() == 2 * batch.input_ids.size());
  tokenizer.decode(batch.input_ids.data(), batch.input_ids.size());
  const int64_t ids[] = {0, 1, 2, 3, 1 << 20};
  tokenizer.decode(ids, 5);
}

void render(std::string_view chat_template) {
  const auto tokenizer = Tokenizer::from_json(kSmallest, {});
  ChatInputs inputs;
  inputs.messages = parse_json(R"([{"role":"user","content":"a"}])", "messages");
  ChatSettings settings;
  settings.chat_template.value = "{#-#}" + std::string(chat_template);
  tokenizer->chat_text(inputs, settings);
}

void read_any(uint8_t kind, std::string_view rest) {
  if (kind % 3 == 0) use(*Tokenizer::from_json(rest, {}));
  if (kind % 3 == 1) use(*Tokenizer::from_json(kSmallest, parse_tokenizer_config(rest, "input")));
  if (kind % 3 == 2) render(rest);
}

}  // namespace

FUZZ_TARGET(tokenizer) {
  if (size == 0 || !plugin_path("tokenizers")) return 0;
  try {
    read_any(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error& error) {
    check(error.message().find('\n') == std::string::npos && error.status() != Status::kUnsupported);
  }
  return 0;
}

}  // namespace tokenizer_fuzz
