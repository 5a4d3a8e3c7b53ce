// SPDX-License-Identifier: Apache-2.0
#include "text/gguf/gguf_tokenizer.hpp"

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "text/gguf/gguf_pre_tokenizer.hpp"
#include "text/gguf/gguf_vocabulary.hpp"

namespace accel::tokenizers {
namespace {

constexpr char kSpaceMark[] = "\xe2\x96\x81";  // U+2581, which SentencePiece has for a space
constexpr char kTemplate[] = "tokenizer.chat_template", kNamedTemplate[] = "tokenizer.chat_template.";

Json object(Json::Members members) { return Json(std::move(members)); }

Json list_of(Json::Items items) { return Json(std::move(items)); }

Json replacing(const char* pattern, const char* content) {
  return object(
      {{"type", Json("Replace")}, {"pattern", object({{"String", Json(pattern)}})}, {"content", Json(content)}});
}

Json byte_level(bool adds_space) {
  return object({{"type", Json("ByteLevel")},
                 {"add_prefix_space", Json(adds_space)},
                 {"trim_offsets", Json(false)},
                 {"use_regex", Json(false)}});
}

bool is_added(GgufTokenKind kind) {
  return kind == GgufTokenKind::kUnknown || kind == GgufTokenKind::kControl || kind == GgufTokenKind::kUserDefined;
}

Json added_tokens(const GgufVocabulary& vocabulary) {
  Json::Items items;
  for (size_t id = 0; id < vocabulary.tokens.size(); id++) {
    if (!is_added(vocabulary.kinds[id]) || vocabulary.tokens[id].empty()) continue;
    items.push_back(object({{"id", Json::number(static_cast<int64_t>(id))},
                            {"content", Json(vocabulary.tokens[id])},
                            {"single_word", Json(false)},
                            {"lstrip", Json(false)},
                            {"rstrip", Json(false)},
                            {"normalized", Json(false)},
                            {"special", Json(vocabulary.kinds[id] != GgufTokenKind::kUserDefined)}}));
  }
  return list_of(std::move(items));
}

struct BpeFlags {
  Json unknown;  // a token, or null
  bool falls_back_to_bytes, ignores_merges;
};

Json bpe_model(const GgufVocabulary& vocabulary, BpeFlags flags) {
  Json::Members ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); id++)
    if (!vocabulary.tokens[id].empty()) ids.emplace_back(vocabulary.tokens[id], Json::number(static_cast<int64_t>(id)));
  Json::Items merges;
  for (const auto& [left, right] : vocabulary.merges) merges.push_back(list_of({Json(left), Json(right)}));
  return object({{"type", Json("BPE")},
                 {"dropout", Json()},
                 {"unk_token", std::move(flags.unknown)},
                 {"continuing_subword_prefix", Json()},
                 {"end_of_word_suffix", Json()},
                 {"fuse_unk", Json(true)},
                 {"byte_fallback", Json(flags.falls_back_to_bytes)},
                 {"ignore_merges", Json(flags.ignores_merges)},
                 {"vocab", object(std::move(ids))},
                 {"merges", list_of(std::move(merges))}});
}

// The tokens around a text.
struct Ends {
  std::optional<int64_t> begin, end;
};

std::optional<int64_t> id_that_is_added(const Json& metadata, const GgufVocabulary& vocabulary, const char* flag,
                                        bool otherwise, const char* role, const std::string& source) {
  if (!json_flag(metadata, flag, otherwise)) return std::nullopt;
  const auto id = vocabulary.id_of_role(role);
  require(id.has_value(), Status::kCorrupt, "the tokenizer of '", source, "' is broken: ", flag,
          otherwise ? " is not false" : " is true", ", and the file has no ", role, "; expected its id");
  return id;
}

Ends ends_of_texts(const Json& metadata, const GgufVocabulary& vocabulary, bool adds_begin, const std::string& source) {
  return {id_that_is_added(metadata, vocabulary, "tokenizer.ggml.add_bos_token", adds_begin, "bos_token", source),
          id_that_is_added(metadata, vocabulary, "tokenizer.ggml.add_eos_token", false, "eos_token", source)};
}

// Null if nothing is around a text.
Json template_of_ends(const GgufVocabulary& vocabulary, const Ends& ends) {
  if (!ends.begin && !ends.end) return {};
  Json::Members special;
  const auto add = [&](Json::Items& sequence, std::optional<int64_t> id, int64_t type) {
    if (!id) return;
    const std::string& token = vocabulary.tokens[static_cast<size_t>(*id)];
    sequence.push_back(object({{"SpecialToken", object({{"id", Json(token)}, {"type_id", Json::number(type)}})}}));
    if (json_member(object(special), token) == nullptr)
      special.emplace_back(
          token,
          object({{"id", Json(token)}, {"ids", list_of({Json::number(*id)})}, {"tokens", list_of({Json(token)})}}));
  };
  const auto add_text = [&](Json::Items& sequence, const char* name, int64_t type) {
    add(sequence, ends.begin, type);
    sequence.push_back(object({{"Sequence", object({{"id", Json(name)}, {"type_id", Json::number(type)}})}}));
    add(sequence, ends.end, type);
  };
  Json::Items single, pair;
  add_text(single, "A", 0);
  add_text(pair, "A", 0);
  add_text(pair, "B", 1);
  return object({{"type", Json("TemplateProcessing")},
                 {"single", list_of(std::move(single))},
                 {"pair", list_of(std::move(pair))},
                 {"special_tokens", object(std::move(special))}});
}

struct Steps {
  Json normalizer, pre_tokenizer, post_processor, decoder, model;
};

Json whole_description(const GgufVocabulary& vocabulary, Steps steps) {
  return object({{"version", Json("1.0")},
                 {"truncation", Json()},
                 {"padding", Json()},
                 {"added_tokens", added_tokens(vocabulary)},
                 {"normalizer", std::move(steps.normalizer)},
                 {"pre_tokenizer", std::move(steps.pre_tokenizer)},
                 {"post_processor", std::move(steps.post_processor)},
                 {"decoder", std::move(steps.decoder)},
                 {"model", std::move(steps.model)}});
}

Json sequence_of(const char* name, Json::Items items) {
  return object({{"type", Json("Sequence")}, {name, list_of(std::move(items))}});
}

Json describe_byte_level(const Json& metadata, const GgufVocabulary& vocabulary, const std::string& source) {
  const std::string name = json_text(metadata, "tokenizer.ggml.pre", "");
  require(!name.empty(), Status::kUnsupported, "'", source,
          "' lacks tokenizer.ggml.pre, so that it is unknown how text is cut; expected a file of a converter that "
          "writes it");
  const GgufPreTokenizer pre = find_gguf_pre_tokenizer(name, source);
  Json::Items cuts;
  for (const char* const pattern : pre.patterns)
    cuts.push_back(object({{"type", Json("Split")},
                           {"pattern", object({{"Regex", Json(pattern)}})},
                           {"behavior", Json("Isolated")},
                           {"invert", Json(false)}}));
  cuts.push_back(byte_level(json_flag(metadata, "tokenizer.ggml.add_space_prefix", false)));
  Json ends = template_of_ends(vocabulary, ends_of_texts(metadata, vocabulary, pre.adds_begin, source));
  Steps steps;
  if (pre.normalizes) steps.normalizer = object({{"type", Json("NFC")}});
  steps.pre_tokenizer = sequence_of("pretokenizers", std::move(cuts));
  steps.post_processor =
      ends.is_null() ? byte_level(true) : sequence_of("processors", {byte_level(true), std::move(ends)});
  steps.decoder = byte_level(true);
  steps.model = bpe_model(vocabulary, {Json(), false, pre.ignores_merges});
  return whole_description(vocabulary, std::move(steps));
}

Json describe_sentence_piece(const Json& metadata, const GgufVocabulary& vocabulary, const std::string& source) {
  require(!json_flag(metadata, "tokenizer.ggml.remove_extra_whitespaces", false), Status::kUnsupported, "'", source,
          "' has tokenizer.ggml.remove_extra_whitespaces true; expected a tokenizer that keeps spaces");
  const bool adds_space = json_flag(metadata, "tokenizer.ggml.add_space_prefix", true);
  Json::Items changes;
  if (adds_space) changes.push_back(object({{"type", Json("Prepend")}, {"prepend", Json(kSpaceMark)}}));
  changes.push_back(replacing(" ", kSpaceMark));
  Json::Items decoders = {replacing(kSpaceMark, " "), object({{"type", Json("ByteFallback")}}),
                          object({{"type", Json("Fuse")}})};
  if (adds_space)
    decoders.push_back(object({{"type", Json("Strip")},
                               {"content", Json(" ")},
                               {"start", Json::number(int64_t{1})},
                               {"stop", Json::number(int64_t{0})}}));
  const auto unknown = vocabulary.id_of_role("unk_token");
  bool has_bytes = false;
  for (const GgufTokenKind kind : vocabulary.kinds) has_bytes |= kind == GgufTokenKind::kByte;
  Steps steps;
  steps.normalizer = sequence_of("normalizers", std::move(changes));
  steps.post_processor = template_of_ends(vocabulary, ends_of_texts(metadata, vocabulary, true, source));
  steps.decoder = sequence_of("decoders", std::move(decoders));
  steps.model = bpe_model(
      vocabulary, {unknown ? Json(vocabulary.tokens[static_cast<size_t>(*unknown)]) : Json(), has_bytes, false});
  return whole_description(vocabulary, std::move(steps));
}

void read_templates(TokenizerConfig& config, const Json& metadata) {
  for (const auto& [key, value] : *metadata.members()) {
    if (value.text() == nullptr) continue;
    if (key == kTemplate) config.chat_templates["default"] = *value.text();
    if (starts_with(key, kNamedTemplate)) config.chat_templates[key.substr(sizeof(kNamedTemplate) - 1)] = *value.text();
  }
}

TokenizerConfig config_of_vocabulary(const Json& metadata, const GgufVocabulary& vocabulary) {
  TokenizerConfig config;
  for (const auto& [role, id] : vocabulary.roles)
    config.special_tokens.emplace_back(role, vocabulary.tokens[static_cast<size_t>(id)]);
  config.end_token_ids = vocabulary.ends;
  config.model_input_names = {"input_ids", "attention_mask"};
  read_templates(config, metadata);
  const std::string length = json_text(metadata, "general.architecture", "") + ".context_length";
  if (const int64_t longest = json_integer(metadata, length.c_str(), 0); longest > 0) config.model_max_length = longest;
  return config;
}

GgufTokenizer describe_checked(const Json& metadata, const std::string& source) {
  const std::string kind = json_text(metadata, "tokenizer.ggml.model", "");
  require(
      !kind.empty(), Status::kNotFound, "'", source,
      "' has no tokenizer: it lacks tokenizer.ggml.model; open the tokenizer.json of the model that it was made of");
  require(kind == "gpt2" || kind == "llama", Status::kUnsupported, "'", source, "' has the tokenizer.ggml.model '",
          kind, "'; expected gpt2 or llama; open the tokenizer.json of the model that it was made of");
  const bool is_byte_level = kind == "gpt2";
  const GgufVocabulary vocabulary =
      is_byte_level ? read_byte_level_vocabulary(metadata, source) : read_sentence_piece_vocabulary(metadata, source);
  return {is_byte_level ? describe_byte_level(metadata, vocabulary, source)
                        : describe_sentence_piece(metadata, vocabulary, source),
          config_of_vocabulary(metadata, vocabulary)};
}

}  // namespace

GgufTokenizer describe_gguf_tokenizer(const Json& metadata, const std::string& source) {
  try {
    return describe_checked(metadata, source);
  } catch (const Error& error) {
    // Entries of other types than the format's do not know the file.
    if (error.status() != Status::kTypeMismatch) throw;
    fail(Status::kCorrupt, "the tokenizer of '", source, "' is broken: ", error.message());
  }
}

}  // namespace accel::tokenizers
