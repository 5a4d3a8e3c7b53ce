// SPDX-License-Identifier: Apache-2.0
// The keys of DeepSpeed's configuration, and which of them change nothing here.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace accel {

// "key: why it has no effect", one for each key of the document that changes nothing, also for those that DeepSpeed
// does not know. An unknown key within zero_optimization, fp16 or bf16 is an error, as it is for DeepSpeed; `source`
// names the document in it.
std::vector<std::string> deepspeed_keys_without_effect(const Json& document, const std::string& source);

// The value at "zero_optimization.stage"; null if there is none, or null itself.
const Json* find_deepspeed_value(const Json& document, std::string_view path);

}  // namespace accel
