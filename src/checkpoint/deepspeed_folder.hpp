// SPDX-License-Identifier: Apache-2.0
// Folders that DeepSpeed's save_checkpoint() writes, which Accelerate's save_state() has in place of the files of a
// model and its optimizer.
//
//   mp_rank_00_model_states.pt                             ZeRO 0 to 2: "module" holds the weights
//   zero_pp_rank_<rank>_mp_rank_00_model_states.pt         ZeRO 3: buffers, and the rank's parts of frozen parameters
//   [bf16_]zero_pp_rank_<rank>_mp_rank_00_optim_states.pt  the rank's parts of the float32 weights and of their states
//
// Parts are flat: with ZeRO 1 and 2 the ranks' parts of a group follow each other and hold its parameters one behind
// the other; with ZeRO 3 each rank has the same part of each parameter. "param_shapes" has names, shapes, and the
// order.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace accel::checkpoint {

// {name: tensor}, in float32 where the ranks have such parts. kCorrupt if parts are missing or do not fit.
c10::IValue read_deepspeed_model(const std::string& folder);
// The state of its optimizer by the names of parameters, without ZeRO by their numbers. NONE with a warning that names
// what is not there, or cannot be taken apart.
c10::IValue read_deepspeed_optimizer(const std::string& folder);

}  // namespace accel::checkpoint
