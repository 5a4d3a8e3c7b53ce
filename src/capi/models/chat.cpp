// SPDX-License-Identifier: Apache-2.0
// Chats as text and ids.
#include <string>
#include <utility>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/tokenizer.hpp"
#include "capi/models/ids_tensor.hpp"
#include "capi/models/text_value.hpp"
#include "capi/values/value.hpp"
#include "tensor/tree_json.hpp"
#include "text/tokenizer.hpp"

namespace accel::capi {
namespace {

// A value that the program leaves out is null.
Json json_of_value(const accel_value_t* value, const char* name) {
  return value == nullptr ? Json() : tree::json_of(to_ivalue(*value, name), {}, name);
}

tokenizers::ChatInputs chat_inputs(const accel_value_t* messages, const accel_chat_options_t* options) {
  const accel_chat_options_t given = given_options(options, "options");
  tokenizers::ChatInputs inputs;
  const c10::IValue value = to_ivalue(*check_pointer(messages, "messages"), "messages");
  inputs.messages =
      value.isString() ? parse_json(value.toStringRef(), "messages") : tree::json_of(value, {}, "messages");
  inputs.tools = json_of_value(given.tools, "options.tools");
  inputs.documents = json_of_value(given.documents, "options.documents");
  inputs.variables = json_of_value(given.variables, "options.variables");
  return inputs;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_tokenizer_chat_text(const accel_tokenizer_t* tokenizer,
                                                        const accel_value_t* messages,
                                                        const accel_chat_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const tokenizers::Tokenizer& engine = *check(tokenizer, "tokenizer").tokenizer;
    return from_ivalue(
        value_of_text(engine.chat_text(chat_inputs(messages, options), read_settings(options, "options"))));
  });
}

ACCEL_FUNCTION accel_status_t accel_tokenizer_encode_chat(const accel_tokenizer_t* tokenizer,
                                                          const accel_value_t* messages,
                                                          const accel_chat_options_t* options, accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const tokenizers::Tokenizer& engine = *check(tokenizer, "tokenizer").tokenizer;
    return tensor_of_ids(engine.encode_chat(chat_inputs(messages, options), read_settings(options, "options")));
  });
}

}  // namespace accel::capi
