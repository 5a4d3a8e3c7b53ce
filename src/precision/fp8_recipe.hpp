// SPDX-License-Identifier: Apache-2.0
// The recipe of mixed precision fp8: which linear layers compute in 8 bits, and where their scales come from.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "config/generated/settings/fp8/fp8.hpp"

namespace accel {
enum class Precision : int32_t;
}

namespace accel::precision {

// Whether the layer with this weight computes in 8 bits.
using Fp8Filter = std::function<bool(const std::string& name, const at::Tensor& weight)>;

struct Fp8Recipe {
  Fp8Scaling scaling = Fp8Scaling::kCurrent;
  Fp8Format format = Fp8Format::kHybrid;
  Fp8AmaxAlgorithm amax_algorithm = Fp8AmaxAlgorithm::kMostRecent;
  int64_t amax_history_length = 1024;  // steps
  int64_t margin = 0;                  // scales are divided by 2^margin
  int64_t interval = 1;                // steps
  // Products in bfloat16.
  bool override_forward = false, override_input_gradient = false, override_weight_gradient = false;
  bool use_in_evaluation = false;
  bool skip_first_and_last = true;
  bool fsdp_all_gather = true;
  bool pad_inner_dim = true;
  bool compress_activations = true;
  std::string skip_names;  // a regular expression, empty: none
  Fp8Filter filter;        // may be empty
};

// "CURRENT", "HYBRID", as in accel.h.
const char* name_of(Fp8Scaling scaling);
const char* name_of(Fp8Format format);

// With the defaults of the backend. Settings that contradict each other are an error.
Fp8Recipe make_fp8_recipe(const Fp8Settings& settings);

// The recipe of a state of this precision whose program does not call accel_set_fp8(); nothing unless it is fp8.
std::optional<Fp8Recipe> fp8_recipe_without_call(Precision precision);

}  // namespace accel::precision
