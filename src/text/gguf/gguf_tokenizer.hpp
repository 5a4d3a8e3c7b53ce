// SPDX-License-Identifier: Apache-2.0
// Tokenizer of a GGUF file as a tokenizer.json and the files beside it would say it.
#pragma once

#include <string>

#include "json/json.hpp"
#include "text/tokenizer_config.hpp"

namespace accel::tokenizers {

struct GgufTokenizer {
  Json description;  // of tokenizer.json
  TokenizerConfig config;
};

// `metadata` is that of the file, which `source` names. Byte-level BPE ("gpt2") and SentencePiece's BPE ("llama").
// kNotFound for a file without a tokenizer; kUnsupported for others, by name; kCorrupt as gguf_vocabulary.hpp says.
GgufTokenizer describe_gguf_tokenizer(const Json& metadata, const std::string& source);

}  // namespace accel::tokenizers
