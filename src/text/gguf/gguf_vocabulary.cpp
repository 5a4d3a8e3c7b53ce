// SPDX-License-Identifier: Apache-2.0
#include "text/gguf/gguf_vocabulary.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"

namespace accel::tokenizers {
namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens", kKinds[] = "tokenizer.ggml.token_type";
constexpr char kScores[] = "tokenizer.ggml.scores", kMerges[] = "tokenizer.ggml.merges";

// The spelling of the separator's key is the format's.
constexpr std::pair<const char*, const char*> kGgufRoles[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},     {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"sep_token", "tokenizer.ggml.seperator_token_id"},
    {"pad_token", "tokenizer.ggml.padding_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"}};
constexpr const char* kEnds[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
// Files lack the list of generation_config.json, so llama.cpp knows control tokens that end a turn by their names.
constexpr std::string_view kNamesOfEnds[] = {"<|eot_id|>",      "<|eom_id|>",    "<|im_end|>",   "<|end|>",
                                             "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"};
// SentencePiece has pieces of 16 characters. A bound keeps the search for the halves of a piece short.
constexpr size_t kLongestPiece = 512;

using IdsOfTokens = std::unordered_map<std::string_view, int64_t>;

template <typename... Parts>
[[noreturn]] void corrupt_vocabulary(const std::string& source, const Parts&... parts) {
  fail(Status::kCorrupt, "the tokenizer of '", source, "' is broken: ", parts...);
}

// Null without the array.
const Json::Items* find_array(const Json& metadata, const char* key, const std::string& source) {
  const Json* const found = json_member(metadata, key);
  if (found != nullptr && found->items() == nullptr) corrupt_vocabulary(source, key, " is not an array");
  return found == nullptr ? nullptr : found->items();
}

const Json::Items& needed_array(const Json& metadata, const char* key, const std::string& source) {
  const Json::Items* const found = find_array(metadata, key, source);
  if (found == nullptr) corrupt_vocabulary(source, "it lacks ", key);
  return *found;
}

const Json::Items& array_of_tokens(const Json& metadata, const char* key, size_t tokens, const std::string& source) {
  const Json::Items& items = needed_array(metadata, key, source);
  if (items.size() != tokens)
    corrupt_vocabulary(source, key, " has ", items.size(), " items; expected one for each of ", tokens, " tokens");
  return items;
}

void read_tokens(GgufVocabulary& vocabulary, const Json& metadata, const std::string& source) {
  for (const Json& token : needed_array(metadata, kTokens, source)) {
    if (token.text() == nullptr) corrupt_vocabulary(source, kTokens, " has an item that is not a text");
    vocabulary.tokens.push_back(*token.text());
  }
  if (vocabulary.tokens.empty()) corrupt_vocabulary(source, kTokens, " is empty; expected a token at least");
}

void read_kinds(GgufVocabulary& vocabulary, const Json& metadata, const std::string& source) {
  const size_t count = vocabulary.tokens.size();
  if (find_array(metadata, kKinds, source) == nullptr) {
    vocabulary.kinds.assign(count, GgufTokenKind::kNormal);
    return;
  }
  constexpr int64_t kLast = static_cast<int64_t>(GgufTokenKind::kByte);
  for (const Json& item : array_of_tokens(metadata, kKinds, count, source)) {
    const auto kind = item.integer();
    if (!kind || *kind < 0 || *kind > kLast)
      corrupt_vocabulary(source, kKinds, " of token ", vocabulary.kinds.size(), " is not an integer from 0 to ", kLast);
    vocabulary.kinds.push_back(static_cast<GgufTokenKind>(*kind));
  }
}

IdsOfTokens ids_of_tokens(const GgufVocabulary& vocabulary, const std::string& source) {
  IdsOfTokens ids;
  for (const std::string& token : vocabulary.tokens) {
    const auto id = static_cast<int64_t>(&token - vocabulary.tokens.data());
    if (token.empty()) continue;
    const auto [found, is_new] = ids.emplace(token, id);
    if (!is_new) corrupt_vocabulary(source, "the tokens ", found->second, " and ", id, " are both \"", token, "\"");
  }
  return ids;
}

std::optional<int64_t> token_id(const GgufVocabulary& vocabulary, const Json& metadata, const char* key,
                                const std::string& source) {
  const Json* const given = json_member(metadata, key);
  if (given == nullptr) return std::nullopt;
  const auto id = given->integer();
  const auto count = static_cast<int64_t>(vocabulary.tokens.size());
  if (!id || *id < 0 || *id >= count || vocabulary.tokens[static_cast<size_t>(*id)].empty())
    corrupt_vocabulary(source, key, " is not the id of one of its ", count, " tokens");
  return id;
}

void read_roles(GgufVocabulary& vocabulary, const Json& metadata, const IdsOfTokens& ids, const std::string& source) {
  for (const auto& [role, key] : kGgufRoles)
    if (const auto id = token_id(vocabulary, metadata, key, source)) vocabulary.roles.emplace_back(role, *id);
  for (const char* const key : kEnds)
    if (const auto id = token_id(vocabulary, metadata, key, source)) vocabulary.ends.push_back(*id);
  for (const std::string_view name : kNamesOfEnds)
    if (const auto found = ids.find(name);
        found != ids.end() && vocabulary.kinds[static_cast<size_t>(found->second)] == GgufTokenKind::kControl)
      vocabulary.ends.push_back(found->second);
}

GgufVocabulary read_vocabulary(const Json& metadata, const std::string& source) {
  GgufVocabulary vocabulary;
  read_tokens(vocabulary, metadata, source);
  read_kinds(vocabulary, metadata, source);
  return vocabulary;
}

// A merge is two tokens with a space between; the first one may begin with a space.
void read_merges(GgufVocabulary& vocabulary, const Json& metadata, const IdsOfTokens& ids, const std::string& source) {
  for (const Json& item : needed_array(metadata, kMerges, source)) {
    const std::string* const merge = item.text();
    if (merge == nullptr) corrupt_vocabulary(source, kMerges, " has an item that is not a text");
    const size_t space = merge->find(' ', 1);
    if (space == std::string::npos)
      corrupt_vocabulary(source, "the merge \"", *merge, "\" is not two tokens with a space between");
    std::string left = merge->substr(0, space), right = merge->substr(space + 1);
    for (const std::string& token : {left, right, left + right})
      if (ids.count(token) == 0)
        corrupt_vocabulary(source, "the merge \"", *merge, "\" needs \"", token, "\", which is not one of its tokens");
    vocabulary.merges.emplace_back(std::move(left), std::move(right));
  }
}

int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
}

// Whether the piece is made by merging others.
bool is_merged(GgufTokenKind kind) {
  return kind == GgufTokenKind::kUndefined || kind == GgufTokenKind::kNormal || kind == GgufTokenKind::kUserDefined;
}

struct ScoredMerge {
  double score;
  int64_t left_length, right_length;
  std::string_view left, right;
};

// The merges that make pieces of pieces, those of the highest scores first: in the order in which the converters of
// transformers have them.
void derive_merges(GgufVocabulary& vocabulary, const Json& metadata, const IdsOfTokens& ids,
                   const std::string& source) {
  const size_t count = vocabulary.tokens.size();
  const Json::Items& scores = array_of_tokens(metadata, kScores, count, source);
  const auto find_piece = [&](std::string_view text) {
    const auto found = ids.find(text);
    const bool is_piece = found != ids.end() && is_merged(vocabulary.kinds[static_cast<size_t>(found->second)]);
    return is_piece ? found->second : int64_t{-1};
  };
  std::vector<ScoredMerge> merges;
  for (size_t id = 0; id < count; id++) {
    const auto score = scores[id].number();
    if (!score) corrupt_vocabulary(source, kScores, " of token ", id, " is not a finite number");
    const std::string_view piece = vocabulary.tokens[id];
    if (!is_merged(vocabulary.kinds[id])) continue;
    if (piece.size() > kLongestPiece)
      corrupt_vocabulary(source, "token ", id, " has ", piece.size(), " bytes; expected at most ", kLongestPiece);
    std::vector<std::tuple<int64_t, int64_t, size_t>> halves;
    for (size_t cut = 1; cut < piece.size(); cut++) {
      const int64_t left = find_piece(piece.substr(0, cut));
      const int64_t right = left < 0 ? left : find_piece(piece.substr(cut));
      if (right >= 0) halves.emplace_back(left, right, cut);
    }
    std::sort(halves.begin(), halves.end());
    for (const auto& [left_id, right_id, cut] : halves) {
      const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
      merges.push_back({*score, code_points(left), code_points(right), left, right});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_length, a.right_length) > std::tie(b.score, b.left_length, b.right_length);
  });
  for (const ScoredMerge& merge : merges) vocabulary.merges.emplace_back(merge.left, merge.right);
}

}  // namespace

std::optional<int64_t> GgufVocabulary::id_of_role(const std::string& role) const {
  for (const auto& [known, id] : roles)
    if (known == role) return id;
  return std::nullopt;
}

GgufVocabulary read_byte_level_vocabulary(const Json& metadata, const std::string& source) {
  GgufVocabulary vocabulary = read_vocabulary(metadata, source);
  const IdsOfTokens ids = ids_of_tokens(vocabulary, source);
  read_roles(vocabulary, metadata, ids, source);
  read_merges(vocabulary, metadata, ids, source);
  return vocabulary;
}

GgufVocabulary read_sentence_piece_vocabulary(const Json& metadata, const std::string& source) {
  GgufVocabulary vocabulary = read_vocabulary(metadata, source);
  const IdsOfTokens ids = ids_of_tokens(vocabulary, source);
  read_roles(vocabulary, metadata, ids, source);
  derive_merges(vocabulary, metadata, ids, source);
  return vocabulary;
}

}  // namespace accel::tokenizers
