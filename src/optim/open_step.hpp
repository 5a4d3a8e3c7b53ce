// SPDX-License-Identifier: Apache-2.0
// Open step: a step of which only a device knows whether it is skipped. Its work changes nothing there if a flag is
// set, and the host takes back what it has counted when it reads that.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "optim/rules/update_rule.hpp"

namespace accel::optim {

class OpenStep {
 public:
  OpenStep() = default;  // one that is not skipped
  explicit OpenStep(std::shared_ptr<precision::OverflowFlag> overflow) : overflow_(std::move(overflow)) {}

  // Before anything of a parameter's state is changed or made.
  void note(size_t index, const ParameterState& state);
  // Runs the rule for updates whose steps are counted.
  void update(const UpdateRule& rule, const ParameterGroup& group, std::vector<Update>& updates) const;
  // The most bytes of parameters in a call of update(), which copies what it changes where the rule does not read the
  // flag. Nothing: any.
  std::optional<size_t> most_bytes(const UpdateRule& rule) const;

  // Waits for the device, as settle().
  bool was_skipped() const;
  // Takes back, once.
  void settle(std::vector<ParameterState>& states);

 private:
  struct Former {
    size_t index;  // of the parameter
    ParameterState state;
    std::vector<float> numbers;  // that the host counts
  };

  std::shared_ptr<precision::OverflowFlag> overflow_;  // null: it is not skipped
  std::vector<Former> former_;
};

}  // namespace accel::optim
