// SPDX-License-Identifier: Apache-2.0
#include "cli/models/embedding_request.hpp"

#include "cli/models/request_fields.hpp"

namespace accel::program {
namespace {

constexpr size_t kMostInputs = 2048;
constexpr const char* kExpectedInput =
    "a string, a list of token ids, or a list of at most 2048 of them, none of them empty";

// Token ids; empty for anything else.
std::vector<int64_t> ids_of(const Json& value) {
  std::vector<int64_t> ids;
  if (value.items() == nullptr) return {};
  for (const Json& item : *value.items()) {
    const std::optional<int64_t> id = item.integer();
    if (!id || *id < 0) return {};
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

EmbeddingRequest parse_embedding(std::string_view body) {
  const RequestFields fields(body);
  EmbeddingRequest request;
  request.model = fields.text("model").value_or("");
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.refuse("encoding_format", "\"float\" or \"base64\"");
  request.in_base64 = format == "base64";
  request.dimensions = fields.integer("dimensions", {1, 1e9, "an integer of at least 1"});
  const Json* const input = fields.find("input");
  if (input == nullptr) fields.refuse("input", kExpectedInput);
  const Json::Items one = {*input};
  const bool is_list = input->items() != nullptr && ids_of(*input).empty();
  const Json::Items& inputs = is_list ? *input->items() : one;
  for (const Json& item : inputs) {
    if (item.text() != nullptr && !item.text()->empty())
      request.texts.push_back(*item.text());
    else if (std::vector<int64_t> ids = ids_of(item); !ids.empty())
      request.tokens.push_back(std::move(ids));
    else
      fields.refuse("input", kExpectedInput);
  }
  const bool is_mixed = !request.texts.empty() && !request.tokens.empty();
  if (inputs.empty() || inputs.size() > kMostInputs || is_mixed) fields.refuse("input", kExpectedInput);
  return request;
}

}  // namespace accel::program
