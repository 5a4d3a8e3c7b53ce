// SPDX-License-Identifier: Apache-2.0
// The arguments of calls in a pickle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/formats/torch/pickle_node.hpp"

namespace accel::checkpoint {

// An argument, an integer and a tuple of integers. Anything else is kCorrupt and names the call or `what`.
const PickleNode& pickled_argument(const std::string& name, const PickleItems& arguments, size_t index);
int64_t pickled_integer(const PickleNode& node, const char* what);
std::vector<int64_t> pickled_integers(const PickleNode& node, const char* what);

}  // namespace accel::checkpoint
