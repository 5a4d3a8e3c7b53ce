// SPDX-License-Identifier: Apache-2.0
#include "capi/models/generation_options.hpp"

#include <string>
#include <vector>

#include "base/error.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/generation.hpp"
#include "capi/values/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

std::vector<int64_t> tokens_of(const c10::IValue& list, const std::string& name) {
  require(tree::is_sequence(list), Status::kTypeMismatch, name, " is a ", tree::kind_name(list),
          "; expected a list of INT");
  std::vector<int64_t> tokens;
  for (const c10::IValue& token : tree::sequence_items(list)) {
    require(token.isInt(), Status::kTypeMismatch, name, " has a ", tree::kind_name(token), "; expected INT");
    tokens.push_back(token.toInt());
  }
  return tokens;
}

}  // namespace

nn::GenerationSettings read_generation(const accel_generate_options_t* options) {
  const GenerateSettings given = read_settings(options, "options");
  const accel_generate_options_t pointers = given_options(options, "options");
  nn::GenerationSettings settings;
  settings.max_new_tokens = given.max_new_tokens;
  settings.pad_token = given.pad_token;
  settings.choice = {given.sample, given.temperature, given.top_k, given.top_p, given.min_p, given.repetition_penalty};
  if (given.seed.value) settings.seed = static_cast<uint64_t>(*given.seed);
  settings.speculation.tokens = given.speculated_tokens;
  settings.speculation.lookup_tokens = given.lookup_tokens;
  if (pointers.draft_model != nullptr)
    settings.speculation.draft = check(pointers.draft_model, "options.draft_model").module;
  const auto read_tokens = [](const accel_value_t* value, const char* name) {
    return value == nullptr ? std::vector<int64_t>() : tokens_of(to_ivalue(*value, name), name);
  };
  settings.decoder_tokens = read_tokens(pointers.decoder_tokens, "options.decoder_tokens");
  settings.suppress_tokens = read_tokens(pointers.suppress_tokens, "options.suppress_tokens");
  settings.begin_suppress_tokens = read_tokens(pointers.begin_suppress_tokens, "options.begin_suppress_tokens");
  settings.stop_tokens = read_tokens(pointers.stop_tokens, "options.stop_tokens");
  if (pointers.stop_sequences != nullptr) {
    const c10::IValue list = to_ivalue(*pointers.stop_sequences, "options.stop_sequences");
    require(tree::is_sequence(list), Status::kTypeMismatch, "options.stop_sequences is a ", tree::kind_name(list),
            "; expected a list of lists of INT");
    for (const c10::IValue& stop : tree::sequence_items(list))
      settings.stop_sequences.push_back(tokens_of(stop, "options.stop_sequences"));
  }
  return settings;
}

}  // namespace accel::capi
