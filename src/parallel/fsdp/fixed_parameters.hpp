// SPDX-License-Identifier: Apache-2.0
// Fixed parameters: those of a model when it was prepared. Ones that came or went afterwards would be neither gathered
// nor reduced.
#pragma once

#include "nn/module.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {

class FixedParameters {
 public:
  FixedParameters() = default;
  explicit FixedParameters(const nn::Module& model) : parameters_(nn::named_parameters(model)) {}

  // Throws unless the model still has these, with the name of one that differs.
  void check(const nn::Module& model) const;

 private:
  nn::NamedTensors parameters_;
};

}  // namespace accel::parallel
