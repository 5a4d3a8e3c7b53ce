// Reading and writing of what the state dicts of schedulers have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "optim/settings.hpp"

namespace accel::optim {

// The state dict of a scheduler, as a map.
Map scheduler_state(const c10::IValue& state_dict);

c10::IValue as_list(const std::vector<double>& numbers);

// Entries that must be there; a wrong one is an error that names the key.
int64_t read_count(const Map& state, const char* key, int64_t least);
double read_any_number(const Map& state, const char* key);
// As many rates as there are groups.
std::vector<double> read_rates(const Map& state, const char* key, size_t groups);

}  // namespace accel::optim
