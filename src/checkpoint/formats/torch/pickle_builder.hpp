// SPDX-License-Identifier: Apache-2.0
// Builds the objects of a pickle as Python would: from a name, arguments, a state or a persistent id. It executes
// nothing: names are those that pickle_objects.hpp lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/formats/torch/pickle_input.hpp"
#include "checkpoint/formats/torch/pickle_node.hpp"

namespace accel::checkpoint {

// Full names of further classes whose objects are read as plain records.
struct RecordClasses {
  const std::string_view* names;
  size_t count;

  bool has(std::string_view name) const { return std::find(names, names + count, name) != names + count; }
};

struct PickleOptions {
  // Returns the object that a persistent id (a tuple) stands for; empty if there are none.
  std::function<PickleNode(const PickleItems& id)> load_persistent;
  const RecordClasses* records = nullptr;
  // Objects of all other classes are None, and members of maps with other keys than texts and integers are left out,
  // instead of being refused.
  bool skips_unknown = false;
};

class PickleBuilder {
 public:
  // Errors are those of `input`.
  PickleBuilder(const PickleInput& input, const PickleOptions& options) : input_(input), options_(options) {}

  PickleNode named(std::string_view module, std::string_view name) const;
  PickleNode called(const PickleNode& callable, PickleNode* arguments);
  void set_state(PickleNode& object, PickleNode* state);
  PickleNode persistent(const PickleNode& id) const;

  // Whether an object will not be in the value, so that its items do not count.
  bool is_skipped(const PickleNode& object) const;

 private:
  bool is_record(const std::string& name) const;
  void charge(const PickleNode& arguments, int depth);

  const PickleInput& input_;
  const PickleOptions& options_;
  uint64_t copied_ = 0;  // bytes and items that objects took from their arguments
};

}  // namespace accel::checkpoint
