// How a value travels to other ranks: as data, so that to read it never runs anything. Ranks of one job have one
// version of the library and one byte order; no file has this form.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

namespace accel::comm {

// Numbers, strings, lists, maps, and dense tensors of any device.
std::string encode_object(const c10::IValue& value);
// Tensors come back on the CPU, tuples as lists, devices as text. What is no such message is CORRUPT.
c10::IValue decode_object(std::string_view message);

}  // namespace accel::comm
