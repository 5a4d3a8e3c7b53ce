// SPDX-License-Identifier: Apache-2.0
#include "cli/models/text_embedder.hpp"

#include <algorithm>
#include <utility>

namespace accel::program {
namespace {

void require_length(std::int64_t tokens, std::int64_t longest, std::size_t index) {
  if (longest == 0 || tokens <= longest) return;
  throw cpp::Error(ACCEL_ERROR_INVALID_ARGUMENT, "text " + std::to_string(index) + " has " + std::to_string(tokens) +
                                                     " tokens; expected at most " + std::to_string(longest));
}

// The number of tokens of each row of a mask.
std::vector<std::int64_t> lengths_of(const cpp::Tensor& mask) {
  const std::vector<std::int64_t> shape = mask.shape();
  const auto* const data = static_cast<const std::int64_t*>(mask.data());
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row < shape[0]; ++row)
    lengths.push_back(std::count(data + row * shape[1], data + (row + 1) * shape[1], 1));
  return lengths;
}

}  // namespace

Embeddings TextEmbedder::embed(const std::vector<std::string>& texts, std::size_t first) {
  Embeddings embeddings;
  for (std::size_t begin = 0; begin < texts.size(); begin += static_cast<std::size_t>(batch_size_)) {
    const std::size_t end = std::min(texts.size(), begin + static_cast<std::size_t>(batch_size_));
    std::vector<cpp::Value> batch;
    for (std::size_t i = begin; i < end; ++i) batch.push_back(cpp::Value::bytes(texts[i]));
    cpp::EncodeOptions options;
    if (truncates_) options.max_length = model_.max_positions;
    const cpp::Value inputs = model_.tokenizer.encode_batch(cpp::Value::list(batch), options);
    std::size_t index = first + begin;
    for (const std::int64_t length : lengths_of(inputs.at("attention_mask").tensor()))
      require_length(length, model_.max_positions, index++);
    embed_batch(inputs, embeddings);
  }
  return embeddings;
}

Embeddings TextEmbedder::embed_tokens(const std::vector<std::vector<std::int64_t>>& sequences) {
  Embeddings embeddings;
  for (const std::vector<std::int64_t>& tokens : sequences) {
    const auto length = static_cast<std::int64_t>(tokens.size());
    require_length(length, model_.max_positions, embeddings.rows.size());
    const std::vector<std::int64_t> mask(tokens.size(), 1);
    embed_batch(
        cpp::Value::map({{"input_ids", cpp::Tensor::from_data(tokens.data(), {1, length}, ACCEL_DTYPE_INT64)},
                         {"attention_mask", cpp::Tensor::from_data(mask.data(), {1, length}, ACCEL_DTYPE_INT64)}}),
        embeddings);
  }
  return embeddings;
}

void TextEmbedder::embed_batch(const cpp::Value& inputs, Embeddings& embeddings) {
  require_tokens(inputs.at("input_ids").tensor(), model_);
  const cpp::Scope inference = cpp::inference_mode();
  std::vector<cpp::Value> values = {inputs.at("input_ids"), inputs.at("attention_mask")};
  if (const auto types = inputs.find("token_type_ids")) values.push_back(*types);
  const cpp::Value output =
      cpp::convert_to_fp32(cpp::send_to_device(model_.module.call(values), {ACCEL_DEVICE_CPU, -1}, false, {}));
  const cpp::Tensor rows = output.tensor();
  const std::vector<std::int64_t> shape = rows.shape();
  const auto* const data = static_cast<const float*>(rows.data());
  for (std::int64_t row = 0; row < shape[0]; ++row)
    embeddings.rows.emplace_back(data + row * shape[1], data + (row + 1) * shape[1]);
  for (const std::int64_t length : lengths_of(values[1].tensor())) embeddings.tokens += length;
}

}  // namespace accel::program
