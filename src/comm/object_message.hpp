// SPDX-License-Identifier: Apache-2.0
// Serialisation of values that are sent to other ranks. It is pure data: decoding never runs code. Not a file format:
// all ranks of a job have the same version of the library and byte order.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

namespace accel::comm {

// Numbers, strings, lists, maps, and dense tensors of any device.
std::string encode_object(const c10::IValue& value);
// Tensors are decoded on the CPU, tuples as lists, devices as text. An invalid message is CORRUPT.
c10::IValue decode_object(std::string_view message);

}  // namespace accel::comm
