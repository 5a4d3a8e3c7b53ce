// SPDX-License-Identifier: Apache-2.0
// Batches of sequences that get their tokens together.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/generation.hpp"
#include "capi/models/generation_options.hpp"
#include "capi/values/value.hpp"
#include "nn/generation/continuous_batch.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

std::vector<int64_t> read_prompt_tokens(const at::Tensor& tokens) {
  require(tokens.dim() == 1, Status::kShapeMismatch, "input_ids has the shape ", tokens.sizes(), "; expected [length]");
  require(tokens.scalar_type() == at::kLong, Status::kTypeMismatch, "input_ids is ",
          tensor::dtype_name(tokens.scalar_type()), "; expected int64");
  const at::Tensor host = tokens.cpu().contiguous();
  const auto* const first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

c10::IValue token_value(const nn::NewToken& token) {
  auto map = tree::new_map();
  map.insert("id", token.sequence);
  if (token.token >= 0) {
    map.insert("token", token.token);
    map.insert("log_probability", token.log_probability);
  }
  map.insert("end", nn::sequence_end_name(token.end));
  if (!token.error.empty()) map.insert("error", token.error);
  return map;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_generation_batch_create(accel_module_t* module,
                                                            const accel_generation_batch_options_t* options,
                                                            accel_generation_batch_t** out) {
  return guarded(__func__, out, [&] {
    const GenerationBatchSettings given = read_settings(options, "options");
    nn::BatchLimits limits;
    limits.max_sequences = given.max_sequences;
    limits.max_cached_tokens = given.max_cached_tokens;
    limits.max_prompt_tokens = given.max_prompt_tokens;
    limits.reuses_prompts = given.reuse_prompts;
    return std::make_shared<nn::ContinuousBatch>(check(module, "module").module, limits);
  });
}

ACCEL_FUNCTION accel_generation_batch_t* accel_generation_batch_retain(accel_generation_batch_t* batch) {
  return retain_handle(__func__, batch, "batch");
}

ACCEL_FUNCTION void accel_generation_batch_release(accel_generation_batch_t* batch) { release_handle(batch); }

ACCEL_FUNCTION accel_status_t accel_generation_batch_add(accel_generation_batch_t* batch,
                                                         const accel_tensor_t* input_ids,
                                                         const accel_generate_options_t* options, int64_t* out_id) {
  return guarded(__func__, [&] {
    nn::ContinuousBatch& engine = *check(batch, "batch").batch;
    const at::Tensor& tokens = check(input_ids, "input_ids").tensor;
    check_pointer(out_id, "out_id");
    const GenerateSettings given = read_settings(options, "options");
    const std::string load = given.load_prompt_cache, save = given.save_prompt_cache;
    require(
        load.empty() && save.empty(), Status::kUnsupported,
        "load_prompt_cache or save_prompt_cache is given for a sequence of a batch; expected accel_module_generate()");
    *out_id = engine.add(read_prompt_tokens(tokens), read_generation(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_generation_batch_step(accel_generation_batch_t* batch, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    std::vector<c10::IValue> tokens;
    for (const nn::NewToken& token : check(batch, "batch").batch->step()) tokens.push_back(token_value(token));
    return from_ivalue(tree::new_list(std::move(tokens)));
  });
}

ACCEL_FUNCTION accel_status_t accel_generation_batch_cancel(accel_generation_batch_t* batch, int64_t id) {
  return guarded(__func__, [&] {
    require(check(batch, "batch").batch->cancel(id), Status::kNotFound, "no sequence ", id,
            " waits or gets tokens; expected one that has not ended");
  });
}

ACCEL_FUNCTION accel_status_t accel_generation_batch_info(const accel_generation_batch_t* batch, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::BatchCounts counts = check(batch, "batch").batch->counts();
    auto map = tree::new_map();
    map.insert("running", counts.running);
    map.insert("waiting", counts.waiting);
    map.insert("cached_tokens", counts.cached_tokens);
    map.insert("reused_tokens", counts.reused_tokens);
    map.insert("guessed_tokens", counts.guessed_tokens);
    map.insert("accepted_tokens", counts.accepted_tokens);
    return from_ivalue(map);
  });
}

}  // namespace accel::capi
