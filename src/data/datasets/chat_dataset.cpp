// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/chat_dataset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/datasets/file_list.hpp"
#include "json/json.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

tokenizers::ChatInputs chat_of_line(std::string_view line, const std::string& location) {
  const Json row = parse_json(line, location);
  const Json* const messages = json_member(row, "messages");
  require(messages != nullptr, Status::kCorrupt, location,
          R"( has no "messages"; expected an object with a list of these)");
  tokenizers::ChatInputs inputs;
  inputs.messages = *messages;
  if (const Json* const tools = json_member(row, "tools")) inputs.tools = *tools;
  if (const Json* const documents = json_member(row, "documents")) inputs.documents = *documents;
  return inputs;
}

at::Tensor tensor_of_chat(const int64_t* ids, int64_t count) {
  at::Tensor tensor = at::empty({count}, at::kLong);
  std::copy_n(ids, count, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

ChatDataset::ChatDataset(const std::string& path, const std::optional<std::string>& suffix,
                         std::shared_ptr<const tokenizers::Tokenizer> tokenizer, int64_t max_length,
                         bool skips_malformed)
    : RowDataset(RowIndex(find_files(path, suffix, "JSON lines"), line_end, false)),
      tokenizer_(std::move(tokenizer)),
      max_length_(max_length) {
  require(max_length >= 1, Status::kInvalidArgument, "max_length is ", max_length, "; expected at least 1");
  if (skips_malformed) skip_malformed();
}

c10::IValue ChatDataset::read_item(int64_t index) const {
  const std::string location = rows().location(index);
  const tokenizers::ChatInputs chat = chat_of_line(rows().row(index), location);
  std::vector<int64_t> ids;
  try {
    ids = tokenizer_->encode_chat(chat);
  } catch (const Error& error) {
    fail(error.status(), location, ": ", error.message());
  }
  require(ids.size() >= 2, Status::kCorrupt, location, " is a chat of ", ids.size(), " tokens; expected at least 2");
  const int64_t count = std::min(max_length_, static_cast<int64_t>(ids.size()) - 1);
  return tree::new_list({tensor_of_chat(ids.data(), count), tensor_of_chat(ids.data() + 1, count)});
}

}  // namespace accel::data
