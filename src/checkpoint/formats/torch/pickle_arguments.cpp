// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_arguments.hpp"

#include "base/error.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"

namespace accel::checkpoint {

const PickleNode& pickled_argument(const std::string& name, const PickleItems& arguments, size_t index) {
  require(index < arguments.size(), Status::kCorrupt, name, " is called with ", arguments.size(),
          " arguments; expected at least ", index + 1);
  return *arguments[index];
}

int64_t pickled_integer(const PickleNode& node, const char* what) {
  require(node.value() != nullptr && node.value()->isInt(), Status::kCorrupt, what, " is a ", kind_of(node),
          "; expected an integer of 64 bits");
  return node.value()->toInt();
}

std::vector<int64_t> pickled_integers(const PickleNode& node, const char* what) {
  require(node.items() != nullptr, Status::kCorrupt, what, " are a ", kind_of(node), "; expected a tuple");
  std::vector<int64_t> integers;
  for (const PickleNode* item : *node.items()) integers.push_back(pickled_integer(*item, what));
  return integers;
}

}  // namespace accel::checkpoint
