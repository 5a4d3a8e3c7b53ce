// SPDX-License-Identifier: Apache-2.0
// Settings of sharding as they hold for a model: of the call, the environment and the configuration file, with the
// defaults that depend on other settings.
#pragma once

#include <string>
#include <vector>

#include "config/generated/settings/prepare/fsdp.hpp"

namespace accel {

// Settings that exclude each other are errors, which name the field and where its value is from; what has no effect is
// one warning. `has_shards`: the mesh has an axis of shards, so that sharding is on unless the settings say otherwise;
// `enabled` of the result has a value. Types are "float32", "bfloat16", "float16" or empty.
FsdpSettings resolve_fsdp_settings(FsdpSettings given, bool has_shards = false);

// Checks settings that are complete, such as those that DeepSpeed describes.
FsdpSettings check_fsdp_settings(FsdpSettings given);

// "A, B" are A and B. An empty name is an error that names the field.
std::vector<std::string> class_names(const std::string& list, const char* field);

}  // namespace accel
