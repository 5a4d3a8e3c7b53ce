// SPDX-License-Identifier: Apache-2.0
// Plans of tensor parallelism: rules that say how the layers of a model are split over ranks, in the terms of Hugging
// Face's `base_model_tp_plan`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.hpp"

namespace accel::parallel {

// Ranks have parts of a product's output or input features, of the rows or features of an embedding's table, or of the
// features inside each expert of a layer; along the axis "expert", some of the experts.
enum class SplitAlong { kNothing, kOutputs, kInputs, kRows, kColumns, kExpertFeatures, kExperts };

struct SplitStyle {
  const char* name;
  SplitAlong along;
  bool splits_input;    // the input is whole on all ranks, and each takes its part
  bool gathers_output;  // the output is whole on all ranks
  bool is_packed;       // the output, or the input, is several tensors behind each other, which are split one by one
  bool sums_gradients;  // of a whole layer, of whose gradients each rank computes a term
};

struct SplitRule {
  std::string pattern;  // a path from the root of the model; * is one part of a path
  const SplitStyle* style = nullptr;
  std::vector<int64_t> packed;  // sizes of packed tensors, or their number alone
  int64_t head_size = 0;        // features that stay together, as those of a head do; 0: none do
  std::string text;             // as it was written

  bool matches(std::string_view path) const;
};

// "PATTERN STYLE", one a line or with ; between them.
std::vector<SplitRule> read_plan(std::string_view text);

// The rules that name a module or a parameter.
std::vector<SplitRule> rules_that_match(const std::vector<SplitRule>& rules, const nn::Module& module);

// The plan of a model's kind, or of those modules in it that have one; empty: there is none.
std::vector<SplitRule> find_plan(const nn::Module& model, bool sequence_parallel);
// Finds the plan; fails if there is none.
std::vector<SplitRule> plan_of(const nn::Module& model, bool sequence_parallel);

}  // namespace accel::parallel
