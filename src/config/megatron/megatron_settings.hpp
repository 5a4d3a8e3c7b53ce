// SPDX-License-Identifier: Apache-2.0
// Megatron settings: what the section megatron_lm_config of a configuration file means to the library.
//
//   distributed_type: MEGATRON_LM
//   megatron_lm_config:
//     megatron_lm_tp_degree: 2               # tensor_parallel_size
//     megatron_lm_num_micro_batches: 4       # micro_batches of a pipeline
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/reference_configuration.hpp"

namespace accel {

// A member of the section: the settings that it decides, or why it changes nothing.
struct MegatronSetting {
  std::string_view name;  // of the member
  std::vector<ReferenceMeaning> settings = {};
  const char* without_effect = nullptr;  // why, if it changes nothing
};

// The members that are there, by their names, as they are written. Members that ask for nothing decide nothing. Throws
// INVALID_ARGUMENT for one that does not fit another one; `place_of` tells where it stands.
std::vector<MegatronSetting> megatron_settings(const std::map<std::string, std::string, std::less<>>& members,
                                               const std::function<std::string(std::string_view name)>& place_of);

}  // namespace accel
