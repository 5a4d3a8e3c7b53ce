// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/model_tokenizer.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "os/mapped_file.hpp"
#include "text/gguf/gguf_tokenizer.hpp"

namespace accel::bigmodel {
namespace {

// A file with a vocabulary alone has no table.
void require_rows(const checkpoint::GgufHeader& header, const std::string& path) {
  const Json* const tokens = json_member(header.metadata, "tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->items() == nullptr) return;
  const auto count = static_cast<int64_t>(tokens->items()->size());
  for (const checkpoint::GgufTensorEntry& entry : header.tensors)
    require(entry.name != "token_embd.weight" || entry.shape.empty() || entry.shape[0] >= count, Status::kCorrupt, "'",
            path, "' has ", count, " tokens, and ", entry.shape.empty() ? 0 : entry.shape[0],
            " rows in token_embd.weight; expected a row for each token");
}

}  // namespace

std::shared_ptr<const tokenizers::Tokenizer> load_model_tokenizer(const std::string& path) {
  if (!has_extension(path, ".gguf")) return tokenizers::Tokenizer::load(path);
  const MappedFile file(path);
  const checkpoint::GgufHeader header = checkpoint::parse_gguf_header(file.text(), path);
  require_rows(header, path);
  tokenizers::GgufTokenizer described = tokenizers::describe_gguf_tokenizer(header.metadata, path);
  return tokenizers::Tokenizer::from_json(print_json(described.description), std::move(described.config), path);
}

}  // namespace accel::bigmodel
