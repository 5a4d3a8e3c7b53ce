// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al., 2019) with its language modelling head.
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Names, shapes and initial distributions are those of GPT2LMHeadModel. Input: token ids [batch, length]; output:
// logits [batch, length, vocabulary].
ModulePtr build_gpt2(const Json& config);

}  // namespace accel::nn
