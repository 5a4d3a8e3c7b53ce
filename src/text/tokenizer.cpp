// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_set>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "json/json_writer.hpp"
#include "os/file_bytes.hpp"
#include "os/list_folder.hpp"
#include "text/tokenizer_plugin.hpp"

namespace accel::tokenizers {
namespace {

constexpr char kTokenizerFile[] = "/tokenizer.json";
constexpr char kWordPiece[] = "WordPiece";

void append_added_token(JsonWriter& writer, const AddedToken& token) {
  writer.begin_object();
  writer.name("content");
  writer.text(token.content);
  const std::pair<const char*, bool> flags[] = {{"single_word", token.single_word},
                                                {"lstrip", token.lstrip},
                                                {"rstrip", token.rstrip},
                                                {"normalized", token.normalized},
                                                {"special", token.special}};
  for (const auto& [name, value] : flags) {
    writer.name(name);
    writer.flag(value);
  }
  writer.end_object();
}

// Adds what the files beside tokenizer.json add to its vocabulary, in the order of their ids, and special tokens that
// are no added ones there.
void add_tokens_of_config(TokenizerPlugin& plugin, const Json& description, const TokenizerConfig& config) {
  std::unordered_set<std::string> known;
  if (const Json* const added = json_member(description, "added_tokens"); added != nullptr && added->items() != nullptr)
    for (const Json& token : *added->items()) known.insert(*token.text());
  std::string list;
  JsonWriter writer(list);
  writer.begin_list();
  for (const AddedToken& token : config.added_tokens)
    if (known.insert(token.content).second) append_added_token(writer, token);
  const auto add_special = [&](const std::string& content) {
    AddedToken token;
    token.content = content;
    if (known.insert(content).second) append_added_token(writer, token);
  };
  for (const auto& named : config.special_tokens) add_special(named.second);
  for (const std::string& token : config.additional_special_tokens) add_special(token);
  writer.end_list();
  if (list != "[]") plugin.add_tokens(list);
}

PluginEncodeOptions plugin_options(const EncodeSettings& settings, const TokenizerConfig& config, int threads) {
  const PaddingSide cut = settings.truncation_side.value.value_or(config.truncation_side);
  return {settings.add_special_tokens ? 1 : 0,
          settings.parse_special_tokens ? 1 : 0,
          cut == PaddingSide::kLeft ? 1 : 0,
          static_cast<int>(settings.offsets.value),
          static_cast<size_t>(settings.max_length.value),
          static_cast<size_t>(std::max(threads, 1))};
}

PluginTexts plugin_texts(const EncodedText& text) {
  PluginTexts texts{{text.first.data(), text.first.size()}, {nullptr, 0}, text.second.has_value() ? 1 : 0};
  if (text.second) texts.second = {text.second->data(), text.second->size()};
  return texts;
}

// Rows as they come, before the longest is known.
struct RowsOfIds {
  std::vector<int64_t> ids, type_ids, offsets;
  std::vector<size_t> ends;
  int64_t longest = 0;
};

std::string missing_tokenizer(const std::string& folder) {
  std::string reason = text(folder, " has no tokenizer.json");
  for (const char* const other :
       {"tokenizer.model", "spiece.model", "vocab.txt", "vocab.json", "sentencepiece.bpe.model"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder + "/" + other, ignored)) continue;
    return reason +
           text(", only ", other, "; save it with a fast tokenizer of transformers, which writes tokenizer.json");
  }
  return reason + "; expected the folder of a model, or the path of a tokenizer.json";
}

// By which punctuation and contractions follow their word: text of models whose vocabulary has spaces around them.
std::string without_spaces_of_tokens(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    std::string changed;
    size_t begin = 0;
    for (size_t at; (at = text.find(from, begin)) != std::string::npos; begin = at + from.size())
      changed.append(text, begin, at - begin).append(to);
    text = changed.append(text, begin, std::string::npos);
  }
  return text;
}

}  // namespace

Tokenizer::Tokenizer(std::string_view json, TokenizerConfig config, const std::string& source)
    : config_(std::move(config)), plugin_(std::make_unique<TokenizerPlugin>(json, source)) {
  const Json description = parse_json(plugin_->describe(), source);
  model_ = json_text(description, "model", "");
  add_tokens_of_config(*plugin_, description, config_);
  vocabulary_size_ = json_integer(parse_json(plugin_->describe(), source), "vocabulary_size", 0);
}

Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  if (!is_folder(path)) {
    const FileBytes file(path);
    return from_json(file.text(), {}, path);
  }
  const std::string file = path + kTokenizerFile;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    const std::string reason = missing_tokenizer(path);
    fail(reason.find(", only ") == std::string::npos ? Status::kNotFound : Status::kUnsupported, reason);
  }
  const FileBytes bytes(file);
  return from_json(bytes.text(), read_tokenizer_config(path), file);
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json, TokenizerConfig config,
                                                      const std::string& source) {
  return std::shared_ptr<const Tokenizer>(new Tokenizer(json, std::move(config), source));
}

std::vector<int64_t> Tokenizer::encode(const EncodedText& text, const EncodeSettings& settings) const {
  std::vector<int64_t> result;
  PluginEncodeOptions options = plugin_options(settings, config_, 1);
  options.offsets = 0;
  plugin_->encode({plugin_texts(text)}, options,
                  [&result](size_t count, const uint32_t* ids, const uint32_t* /*type_ids*/,
                            const size_t* /*offsets*/) { result.assign(ids, ids + count); });
  return result;
}

EncodedBatch Tokenizer::encode_batch(const std::vector<EncodedText>& texts, const EncodeSettings& settings,
                                     int threads) const {
  std::vector<PluginTexts> given;
  given.reserve(texts.size());
  for (const EncodedText& text : texts) given.push_back(plugin_texts(text));
  const bool with_types = settings.token_type_ids.value.value_or(has_token_types());
  const bool with_offsets = settings.offsets.value != TextOffsets::kNone;

  RowsOfIds rows;
  plugin_->encode(given, plugin_options(settings, config_, threads),
                  [&](size_t count, const uint32_t* ids, const uint32_t* type_ids, const size_t* offsets) {
                    rows.ids.insert(rows.ids.end(), ids, ids + count);
                    if (with_types) rows.type_ids.insert(rows.type_ids.end(), type_ids, type_ids + count);
                    if (with_offsets) rows.offsets.insert(rows.offsets.end(), offsets, offsets + 2 * count);
                    rows.ends.push_back(rows.ids.size());
                    rows.longest = std::max(rows.longest, static_cast<int64_t>(count));
                  });

  EncodedBatch batch;
  batch.rows = static_cast<int64_t>(texts.size());
  batch.has_token_types = with_types;
  batch.has_offsets = with_offsets;
  const int64_t multiple = settings.pad_to_multiple_of;
  batch.length = std::max<int64_t>(rows.longest, settings.pad_to_length);
  require(batch.length <= INT64_MAX - multiple, Status::kInvalidArgument, "pad_to_length is ", batch.length,
          "; expected a length that memory holds");
  batch.length = (batch.length + multiple - 1) / multiple * multiple;
  const int64_t filled = batch.rows * batch.length - static_cast<int64_t>(rows.ids.size());
  auto pad = settings.pad_token_id.value;
  if (!pad && filled > 0) pad = special_token_id("pad_token");
  require(pad.has_value() || filled == 0, Status::kInvalidArgument, "texts have up to ", batch.length,
          " tokens and not all the same number, and the tokenizer has no padding token; set pad_token_id");
  const bool is_left = settings.padding_side.value.value_or(config_.padding_side) == PaddingSide::kLeft;

  const auto cells = static_cast<size_t>(batch.rows * batch.length);
  batch.input_ids.assign(cells, pad.value_or(0));
  batch.attention_mask.assign(cells, 0);
  if (with_types) batch.token_type_ids.assign(cells, 0);
  if (with_offsets) batch.offsets.assign(2 * cells, 0);
  for (size_t row = 0, begin = 0; row < rows.ends.size(); begin = rows.ends[row++]) {
    const size_t count = rows.ends[row] - begin, length = static_cast<size_t>(batch.length);
    const size_t to = row * length + (is_left ? length - count : 0);
    std::copy_n(rows.ids.data() + begin, count, batch.input_ids.data() + to);
    std::fill_n(batch.attention_mask.data() + to, count, 1);
    if (with_types) std::copy_n(rows.type_ids.data() + begin, count, batch.token_type_ids.data() + to);
    if (with_offsets) std::copy_n(rows.offsets.data() + 2 * begin, 2 * count, batch.offsets.data() + 2 * to);
  }
  return batch;
}

bool Tokenizer::has_token_types() const {
  if (!config_.model_input_names.empty())
    return std::find(config_.model_input_names.begin(), config_.model_input_names.end(), "token_type_ids") !=
           config_.model_input_names.end();
  // Encoders with this vocabulary that have no such input.
  return model_ == kWordPiece && !starts_with(config_.tokenizer_class, "DistilBert") &&
         !starts_with(config_.tokenizer_class, "MPNet");
}

std::string Tokenizer::decode(const int64_t* ids, size_t count, const DecodeSettings& settings) const {
  std::string decoded = plugin_->decode(ids, count, settings.skip_special_tokens);
  return settings.clean_up_spaces.value.value_or(config_.clean_up_spaces) ? without_spaces_of_tokens(std::move(decoded))
                                                                          : decoded;
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const { return plugin_->token_to_id(token); }

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const { return plugin_->id_to_token(id); }

std::optional<int64_t> Tokenizer::special_token_id(std::string_view role) const {
  const std::string* const token = config_.special_token(role);
  return token == nullptr ? std::nullopt : token_to_id(*token);
}

std::vector<int64_t> Tokenizer::end_token_ids() const {
  std::vector<int64_t> ids;
  if (const auto end = special_token_id("eos_token")) ids.push_back(*end);
  for (const int64_t id : config_.end_token_ids)
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  return ids;
}

}  // namespace accel::tokenizers
