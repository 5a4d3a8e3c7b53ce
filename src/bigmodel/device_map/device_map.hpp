// SPDX-License-Identifier: Apache-2.0
// Device map: where each part of a model is stored.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "nn/tied_parameters.hpp"

namespace accel::bigmodel {

// Places of modules, parameters and buffers by their paths; what is below a path has its place, unless it has one of
// its own. "" is the whole model. A place is the number of an accelerator ("0"), a device ("cpu", "xpu:1"), or "disk".
using DeviceMap = std::vector<std::pair<std::string, std::string>>;

// Throws kInvalidArgument for a place that cannot be one. It need not be there.
void check_place(const std::string& place);
// Whether a place is the number of an accelerator.
bool is_accelerator_number(std::string_view place);

// The place of a path; null if the map has none for it.
const std::string* find_place(const DeviceMap& map, std::string_view path);

// Joins entries below one path that have the same place into one, from the model to its parts.
// @accelerate clean_device_map
DeviceMap clean_device_map(const DeviceMap& map);

// Throws kInvalidArgument with the names of parameters and persistent buffers of the model without a place. Returns the
// paths that name no module, with a warning in the log: parameters and buffers among them have their place all the
// same.
// @accelerate check_device_map
std::vector<std::string> check_device_map(const nn::Module& model, const DeviceMap& map);

// Throws kNotFound, with the most similar path, for one that names no module, parameter or buffer of the model.
void require_paths(const nn::Module& model, const DeviceMap& map);

// Whether a model was dispatched by a map with several entries, or has parameters and buffers on several devices.
// @accelerate verify_device_map
bool is_on_several_devices(const nn::Module& model);

// The groups whose members are in several places, with a warning in the log. Throws kInvalidArgument for a member
// without a place.
// @accelerate check_tied_parameters_on_same_device
nn::TiedGroups tied_in_several_places(const nn::TiedGroups& groups, const DeviceMap& map);

}  // namespace accel::bigmodel
