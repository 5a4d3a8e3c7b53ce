// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "nn/module.hpp"

namespace accel::nn {

// Dropout: zeroes elements with a probability and scales the others up, only in training.
class Dropout final : public Module {
 public:
  explicit Dropout(double probability);
  double probability() const { return probability_; }

  // Ranks of a split model draw from a branch of their random stream with this number: one of their own where they have
  // parts of the input, and a common one elsewhere.
  void set_split_rank(int64_t rank) { split_rank_ = static_cast<uint64_t>(rank); }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  double probability_;
  std::optional<uint64_t> split_rank_;
};

// Checks a dropout probability.
void check_probability(double probability, const char* name);

}  // namespace accel::nn
