// SPDX-License-Identifier: Apache-2.0
// DeepSpeed plugins: settings of DeepSpeed with names, by which several models of a state have the same.
#pragma once

#include <vector>

#include "config/generated/settings/prepare/deepspeed.hpp"

namespace accel::accelerator {

struct ModelEntry;

// The settings that are meant: those of the model that was prepared with the name, if that is all that is given.
// kNotFound if there is no such model; kInvalidArgument if it has other settings.
DeepspeedSettings find_deepspeed_plugin(const DeepspeedSettings& given, const std::vector<ModelEntry>& models);

}  // namespace accel::accelerator
