#pragma once

#include "nn/module.hpp"

namespace accel::nn {

// Dropout: zeroes elements with a probability and scales the others up, only in training.
class Dropout final : public Module {
 public:
  explicit Dropout(double probability);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  double probability_;
};

// Checks a dropout probability.
void check_probability(double probability, const char* name);

}  // namespace accel::nn
