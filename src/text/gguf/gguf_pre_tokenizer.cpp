// SPDX-License-Identifier: Apache-2.0
#include "text/gguf/gguf_pre_tokenizer.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace accel::tokenizers {
namespace {

// The expressions are those of the tokenizer.json of the families, which their models were trained with.
constexpr char kGpt2[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kDigit[] = R"(\p{N})";
// llama.cpp cuts by these where a converter did not know the family.
constexpr char kPunctuation[] = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kThreeDigits[] = R"([0-9][0-9][0-9])";

struct NamedPreTokenizer {
  std::string_view name;
  const char* patterns[4];
  bool normalizes, ignores_merges, adds_begin;
};

constexpr NamedPreTokenizer kPreTokenizers[] = {
    {"default", {kPunctuation, kGpt2, kDigits, kThreeDigits}, false, false, false},
    {"gpt-2", {kGpt2}, false, false, false},
    {"phi-2", {kGpt2}, false, false, false},
    {"llama-bpe", {kLlama3}, false, true, true},
    {"llama3", {kLlama3}, false, true, true},
    {"llama-v3", {kLlama3}, false, true, true},
    {"falcon3", {kLlama3}, false, true, true},
    {"dbrx", {kLlama3}, false, false, false},
    {"smaug-bpe", {kLlama3}, false, false, false},
    {"qwen2", {kQwen2}, true, false, false},
    {"deepseek-r1-qwen", {kQwen2}, false, false, false},
    {"tekken", {kTekken}, false, true, true},
    {"smollm", {kDigit, kGpt2}, false, false, false},
    {"starcoder", {kDigit, kGpt2}, false, false, false},
    {"refact", {kDigit, kGpt2}, false, false, false},
};

}  // namespace

GgufPreTokenizer find_gguf_pre_tokenizer(std::string_view name, const std::string& source) {
  const auto* const found = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                                         [name](const NamedPreTokenizer& known) { return known.name == name; });
  if (found == std::end(kPreTokenizers)) {
    std::string known;
    for (const NamedPreTokenizer& one : kPreTokenizers) known += (known.empty() ? "" : ", ") + std::string(one.name);
    fail(Status::kUnsupported, "'", source, "' has the tokenizer.ggml.pre '", name, "'; expected one of ", known,
         "; open the tokenizer.json of the model that it was made of");
  }
  GgufPreTokenizer result{{}, found->normalizes, found->ignores_merges, found->adds_begin};
  for (const char* const pattern : found->patterns)
    if (pattern != nullptr) result.patterns.push_back(pattern);
  return result;
}

}  // namespace accel::tokenizers
