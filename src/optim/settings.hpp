// Checks and reading of the settings that a state dict carries.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace accel::optim {

using Map = c10::impl::GenericDict;

// `what` names the value in errors ("the state dict").
Map as_map(const c10::IValue& value, const std::string& what);

// The entry, or nullptr.
const c10::IValue* find(const Map& map, const char* key);

// Entries with a value for when they are missing; a wrong type is an error that
// names the key.
double read_number(const Map& map, const char* key, double otherwise);
bool read_flag(const Map& map, const char* key, bool otherwise);

// A copy of a state tensor, laid out as the parameter and on its device.
at::Tensor read_like(const Map& state, const char* key, size_t index, const at::Tensor& parameter);

// A finite number of at least 0.
void require_not_negative(double value, const char* name);
// In [0, 1).
void require_decay_rate(double value, const char* name);

}  // namespace accel::optim
