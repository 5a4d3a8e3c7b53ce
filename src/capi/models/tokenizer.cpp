// SPDX-License-Identifier: Apache-2.0
// Tokenizers: text to ids and back.
#include "text/tokenizer.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "bigmodel/model_tokenizer.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/tokenizer.hpp"
#include "capi/models/ids_tensor.hpp"
#include "capi/models/text_value.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

using tokenizers::EncodedBatch;
using tokenizers::EncodedText;
using tokenizers::Tokenizer;

const Tokenizer& tokenizer_of(const accel_tokenizer_t* tokenizer) { return *check(tokenizer, "tokenizer").tokenizer; }

// Views the value.
EncodedText encoded_text(const c10::IValue& value, const std::string& name) {
  if (!tree::is_sequence(value)) return {text_of_value(value, name), std::nullopt};
  const c10::ArrayRef<c10::IValue> pair = tree::sequence_items(value);
  require(pair.size() == 2, Status::kTypeMismatch, name, " is a list of ", pair.size(),
          "; expected a text, or a pair of texts");
  return {text_of_value(pair[0], name), text_of_value(pair[1], name)};
}

// The rows of int64 or int32 ids.
std::vector<std::vector<int64_t>> rows_of_ids(const at::Tensor& ids) {
  require(ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt, Status::kTypeMismatch, "ids is of ",
          ids.scalar_type(), "; expected int64 or int32");
  require(ids.dim() == 1 || ids.dim() == 2, Status::kShapeMismatch, "ids has ", ids.dim(),
          " dimensions; expected 1 or 2");
  const at::Tensor here = ids.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t count = ids.dim() == 1 ? 1 : ids.size(0), length = ids.size(-1);
  const int64_t* const data = here.const_data_ptr<int64_t>();
  std::vector<std::vector<int64_t>> rows;
  for (int64_t row = 0; row < count; row++) rows.emplace_back(data + row * length, data + (row + 1) * length);
  return rows;
}

c10::IValue list_of_texts(const std::vector<std::string>& texts) {
  return tree::new_list({texts.begin(), texts.end()});
}

c10::IValue list_of_integers(const std::vector<int64_t>& numbers) {
  return tree::new_list({numbers.begin(), numbers.end()});
}

const char* side_name(PaddingSide side) { return side == PaddingSide::kLeft ? "left" : "right"; }

c10::IValue description_of(const Tokenizer& tokenizer) {
  const tokenizers::TokenizerConfig& config = tokenizer.config();
  auto map = tree::new_map();
  map.insert("model", tokenizer.model());
  map.insert("vocabulary_size", tokenizer.vocabulary_size());
  for (const auto& [role, token] : config.special_tokens) {
    map.insert(role, token);
    if (const auto id = tokenizer.token_to_id(token)) map.insert(role + "_id", *id);
  }
  map.insert("additional_special_tokens", list_of_texts(config.additional_special_tokens));
  map.insert("eos_token_ids", list_of_integers(tokenizer.end_token_ids()));
  if (config.model_max_length) map.insert("model_max_length", *config.model_max_length);
  map.insert("padding_side", side_name(config.padding_side));
  map.insert("truncation_side", side_name(config.truncation_side));
  map.insert("model_input_names", list_of_texts(config.model_input_names));
  std::vector<std::string> names;
  for (const auto& entry : config.chat_templates) names.push_back(entry.first);
  map.insert("chat_templates", list_of_texts(names));
  return map;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_tokenizer_load(const char* path, accel_tokenizer_t** out) {
  return guarded(__func__, out, [&] { return bigmodel::load_model_tokenizer(check_pointer(path, "path")); });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_from_json(const char* json, const char* config, accel_tokenizer_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(json, "json");
    return Tokenizer::from_json(
        json, config == nullptr ? tokenizers::TokenizerConfig() : tokenizers::parse_tokenizer_config(config, "config"),
        "json");
  });
}

ACCEL_FUNCTION accel_tokenizer_t* accel_tokenizer_retain(accel_tokenizer_t* tokenizer) {
  return retain_handle(__func__, tokenizer, "tokenizer");
}

ACCEL_FUNCTION void accel_tokenizer_release(accel_tokenizer_t* tokenizer) { release_handle(tokenizer); }

ACCEL_FUNCTION accel_status_t accel_tokenizer_encode(const accel_tokenizer_t* tokenizer, const accel_value_t* text,
                                                     const accel_encode_options_t* options, accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const Tokenizer& engine = tokenizer_of(tokenizer);
    const c10::IValue value = to_ivalue(*check_pointer(text, "text"), "text");
    return tensor_of_ids(engine.encode(encoded_text(value, "text"), read_settings(options, "options")));
  });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_encode_batch(const accel_tokenizer_t* tokenizer,
                                                           const accel_value_t* texts,
                                                           const accel_encode_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const Tokenizer& engine = tokenizer_of(tokenizer);
    const c10::IValue list = to_ivalue(*check_pointer(texts, "texts"), "texts");
    require(tree::is_sequence(list), Status::kTypeMismatch, "texts is a ", tree::kind_name(list),
            "; expected a list of texts");
    std::vector<EncodedText> given;
    for (const c10::IValue& item : tree::sequence_items(list))
      given.push_back(encoded_text(item, "text " + std::to_string(given.size())));
    const EncodedBatch batch = engine.encode_batch(given, read_settings(options, "options"), at::get_num_threads());
    auto map = tree::new_map();
    map.insert("input_ids", tensor_of_ids(batch.input_ids, {batch.rows, batch.length}));
    map.insert("attention_mask", tensor_of_ids(batch.attention_mask, {batch.rows, batch.length}));
    if (batch.has_token_types)
      map.insert("token_type_ids", tensor_of_ids(batch.token_type_ids, {batch.rows, batch.length}));
    if (batch.has_offsets) map.insert("offset_mapping", tensor_of_ids(batch.offsets, {batch.rows, batch.length, 2}));
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_decode(const accel_tokenizer_t* tokenizer, const accel_tensor_t* ids,
                                                     const accel_decode_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const Tokenizer& engine = tokenizer_of(tokenizer);
    const at::Tensor& tensor = check(ids, "ids").tensor;
    const DecodeSettings settings = read_settings(options, "options");
    std::vector<c10::IValue> texts;
    for (const std::vector<int64_t>& row : rows_of_ids(tensor))
      texts.push_back(value_of_text(engine.decode(row.data(), row.size(), settings)));
    return from_ivalue(tensor.dim() == 1 ? texts.front() : c10::IValue(tree::new_list(texts)));
  });
}

ACCEL_FUNCTION accel_status_t accel_decode_stream_create(const accel_tokenizer_t* tokenizer,
                                                         const accel_decode_options_t* options,
                                                         accel_decode_stream_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<tokenizers::DecodeStream>(check(tokenizer, "tokenizer").tokenizer,
                                                      read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_decode_stream_t* accel_decode_stream_retain(accel_decode_stream_t* stream) {
  return retain_handle(__func__, stream, "stream");
}

ACCEL_FUNCTION void accel_decode_stream_release(accel_decode_stream_t* stream) { release_handle(stream); }

ACCEL_FUNCTION accel_status_t accel_decode_stream_step(accel_decode_stream_t* stream, int64_t id, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(value_of_text(check(stream, "stream").stream->step(id))); });
}

ACCEL_FUNCTION accel_status_t accel_decode_stream_finish(accel_decode_stream_t* stream, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(value_of_text(check(stream, "stream").stream->finish())); });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_token_to_id(const accel_tokenizer_t* tokenizer, const char* token,
                                                          int64_t* out) {
  return guarded(__func__, out, [&] {
    const Tokenizer& engine = tokenizer_of(tokenizer);
    const auto id = engine.token_to_id(check_pointer(token, "token"));
    require(id.has_value(), Status::kNotFound, "\"", token,
            "\" is no token of the vocabulary; expected one as it stands there, such as \"Ġword\" for \" word\"");
    return *id;
  });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_id_to_token(const accel_tokenizer_t* tokenizer, int64_t id,
                                                          accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const Tokenizer& engine = tokenizer_of(tokenizer);
    auto token = engine.id_to_token(id);
    require(token.has_value(), Status::kNotFound, "id is ", id, "; expected one of the vocabulary of ",
            engine.vocabulary_size(), " tokens");
    return from_ivalue(value_of_text(std::move(*token)));
  });
}

ACCEL_FUNCTION int64_t accel_tokenizer_vocabulary_size(const accel_tokenizer_t* tokenizer) {
  return guarded_value<int64_t>(__func__, -1, [&] { return tokenizer_of(tokenizer).vocabulary_size(); });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_describe(const accel_tokenizer_t* tokenizer, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(description_of(tokenizer_of(tokenizer))); });
}

}  // namespace accel::capi
