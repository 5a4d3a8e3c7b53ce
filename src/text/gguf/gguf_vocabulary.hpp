// SPDX-License-Identifier: Apache-2.0
// Vocabulary of a GGUF file: its tokens with their kinds, scores, merges and roles, all checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace accel::tokenizers {

// The numbers are those of the format. Undefined tokens count as normal ones.
enum class GgufTokenKind : uint8_t { kUndefined, kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct GgufVocabulary {
  std::vector<std::string> tokens;  // by their ids; an empty one stands for none
  std::vector<GgufTokenKind> kinds;
  std::vector<std::pair<std::string, std::string>> merges;  // the first of those that fit is applied
  std::vector<std::pair<std::string, int64_t>> roles;       // ("bos_token", 1), ...
  std::vector<int64_t> ends;                                // ids that end an answer

  std::optional<int64_t> id_of_role(const std::string& role) const;
};

// Reads the vocabulary of byte-level BPE, which has its merges. kCorrupt for arrays that are missing or of different
// lengths, tokens that are there twice, ids that no token has, and merges of what is no token. `source` names the file.
GgufVocabulary read_byte_level_vocabulary(const Json& metadata, const std::string& source);

// Reads the vocabulary of SentencePiece's BPE, whose merges follow from the scores of its entries.
GgufVocabulary read_sentence_piece_vocabulary(const Json& metadata, const std::string& source);

}  // namespace accel::tokenizers
