// SPDX-License-Identifier: Apache-2.0
// State dicts of schedulers: common functions to read and write them.
#pragma once

#include <cstdint>
#include <vector>

#include "optim/settings.hpp"

namespace accel::optim {

// The state dict of a scheduler, as a map.
Map scheduler_state(const c10::IValue& state_dict);

c10::IValue as_list(const std::vector<double>& numbers);

// Required entries; a wrong one is an error that names the key.
int64_t read_count(const Map& state, const char* key, int64_t least);
double read_any_number(const Map& state, const char* key);
// One rate for each group.
std::vector<double> read_rates(const Map& state, const char* key, size_t groups);

}  // namespace accel::optim
