// SPDX-License-Identifier: Apache-2.0
// Module trees of the fixtures about sizes and device maps.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#include "bigmodel/device_map/infer_device_map.hpp"
#include "nn/module.hpp"

namespace accel::parity {

// {model, ties} of an input.
nn::ModulePtr build_module_tree(const c10::IValue& input);

std::vector<std::string> texts(const c10::IValue& list);

// {dtype, special_dtypes, no_split_module_classes} of an input.
bigmodel::DeviceMapOptions read_size_settings(const c10::IValue& input);

// A list of [key, value] as a map.
c10::IValue map_of_pairs(const c10::IValue& pairs);

}  // namespace accel::parity
