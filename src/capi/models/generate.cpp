// SPDX-License-Identifier: Apache-2.0
// Generation by decoders.
#include "nn/generation/generate.hpp"

#include <string>
#include <utility>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/generation.hpp"
#include "capi/models/generation_options.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/formats/prompt_cache_file.hpp"
#include "nn/generation/prompt_cache.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
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
    const GenerateSettings given = read_settings(options, "options");
    const std::string load = given.load_prompt_cache, save = given.save_prompt_cache;
    nn::PromptCache loaded, saved;
    nn::PromptCaches prompts;
    if (!load.empty()) {
      loaded = checkpoint::load_prompt_cache(load);
      prompts.given = &loaded;
    }
    if (!save.empty()) prompts.made = &saved;
    nn::Generated generated = nn::generate(model, tokens, mask, read_generation(options), hear, prompts);
    if (!save.empty()) checkpoint::save_prompt_cache(save, saved);
    auto map = tree::new_map();
    map.insert("tokens", std::move(generated.tokens));
    map.insert("log_probabilities", std::move(generated.log_probabilities));
    return from_ivalue(map);
  });
}

}  // namespace accel::capi
