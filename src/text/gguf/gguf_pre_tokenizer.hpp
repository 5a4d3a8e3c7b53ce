// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers by the names of GGUF files: how the text is cut before byte-level BPE merges what is between the cuts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accel::tokenizers {

struct GgufPreTokenizer {
  std::vector<const char*> patterns;  // regular expressions; each cuts what the one before has left
  bool normalizes = false;            // to NFC
  bool ignores_merges = false;        // a part of the text that is a token is not merged
  bool adds_begin = false;            // unless the file says it
};

// The row of tokenizer.ggml.pre. kUnsupported for other names, with the known ones; `source` names the file.
GgufPreTokenizer find_gguf_pre_tokenizer(std::string_view name, const std::string& source);

}  // namespace accel::tokenizers
