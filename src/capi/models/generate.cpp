// Generation by decoders.
#include "nn/generation/generate.hpp"

#include <utility>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/generation.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

std::vector<int64_t> read_tokens(const accel_value_t* value, const char* name) {
  std::vector<int64_t> tokens;
  if (value == nullptr) return tokens;
  const c10::IValue list = to_ivalue(*value, name);
  require(tree::is_sequence(list), Status::kTypeMismatch, name, " is a ", tree::kind_name(list),
          "; expected a list of INT");
  for (const c10::IValue& token : tree::sequence_items(list)) {
    require(token.isInt(), Status::kTypeMismatch, name, " has a ", tree::kind_name(token), "; expected INT");
    tokens.push_back(token.toInt());
  }
  return tokens;
}

nn::GenerationSettings read_generation(const accel_generate_options_t* options) {
  const GenerateSettings given = read_settings(options, "options");
  nn::GenerationSettings settings;
  settings.max_new_tokens = given.max_new_tokens;
  const accel_generate_options_t& lists = given_options(options, "options");
  settings.stop_tokens = read_tokens(lists.stop_tokens, "options.stop_tokens");
  settings.decoder_tokens = read_tokens(lists.decoder_tokens, "options.decoder_tokens");
  settings.suppress_tokens = read_tokens(lists.suppress_tokens, "options.suppress_tokens");
  settings.begin_suppress_tokens = read_tokens(lists.begin_suppress_tokens, "options.begin_suppress_tokens");
  settings.pad_token = given.pad_token;
  settings.choice = {given.sample, given.temperature, given.top_k, given.top_p, given.min_p, given.repetition_penalty};
  if (given.seed.value) settings.seed = static_cast<uint64_t>(*given.seed);
  return settings;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_module_generate(accel_module_t* module, const accel_tensor_t* input_ids,
                                                    const accel_tensor_t* attention_mask,
                                                    const accel_generate_options_t* options,
                                                    accel_generated_fn on_tokens, void* user_data,
                                                    accel_destroy_fn destroy, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const Callback<accel_generated_fn> callback(on_tokens, user_data, destroy);
    nn::Module& model = *check(module, "module").module;
    const at::Tensor& tokens = check(input_ids, "input_ids").tensor;
    const at::Tensor mask = attention_mask == nullptr ? at::Tensor() : check(attention_mask, "attention_mask").tensor;
    nn::OnTokens hear;
    if (on_tokens != nullptr)
      hear = [&callback](const at::Tensor& added) {
        accel_value_t goes_on = ACCEL_VALUE_INIT;
        const DisposeValue dispose(goes_on);
        const TensorHandle handle(new_tensor(added));
        callback.checked("on_tokens", handle.get(), &goes_on);
        const c10::IValue answer = to_ivalue(goes_on, "the answer of on_tokens");
        require(answer.isNone() || answer.isBool(), Status::kTypeMismatch, "on_tokens gave a ", tree::kind_name(answer),
                "; expected BOOL or NONE");
        return answer.isNone() || answer.toBool();
      };
    nn::Generated generated = nn::generate(model, tokens, mask, read_generation(options), hear);
    auto map = tree::new_map();
    map.insert("tokens", std::move(generated.tokens));
    map.insert("log_probabilities", std::move(generated.log_probabilities));
    return from_ivalue(map);
  });
}

}  // namespace accel::capi
