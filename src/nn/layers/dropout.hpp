#pragma once

#include "nn/module.hpp"

namespace accel::nn {

// Zeroes elements with a probability and scales the others up, in training only.
class Dropout final : public Module {
 public:
  explicit Dropout(double probability);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  double probability_;
};

// The one rule for probabilities of dropout.
void check_probability(double probability, const char* name);

}  // namespace accel::nn
