// How products in 8-bit floating point are scaled: the settings of the reference's three recipes, resolved and checked.
// @accelerate FP8RecipeKwargs, TERecipeKwargs, AORecipeKwargs, MSAMPRecipeKwargs
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/setting.hpp"

namespace accel {

enum class Fp8Backend : int32_t { kTransformerEngine, kTorchAo, kMsAmp };

struct Fp8RecipeOptions {
  std::optional<std::string> backend, fp8_format, amax_compute_algo, opt_level;
  std::optional<int64_t> margin, interval, amax_history_len;
  std::optional<bool> use_autocast_during_eval, override_fprop, override_dgrad, override_wgrad;
  std::optional<bool> use_mxfp8_block_scaling, pad_inner_dim, enable_fsdp_float8_all_gather;
};

struct Fp8Recipe {
  Fp8Backend backend;
  Setting<std::string> backend_name, fp8_format, amax_compute_algo, opt_level;
  Setting<int64_t> margin, interval, amax_history_len;
  Setting<bool> use_autocast_during_eval, override_fprop, override_dgrad, override_wgrad;
  Setting<bool> use_mxfp8_block_scaling, pad_inner_dim, enable_fsdp_float8_all_gather;
};

// A setting that the call gives for another backend than the one that is chosen is an error.
Fp8Recipe resolve_fp8_recipe(const Fp8RecipeOptions& options);

// "name = value (source)", a line each, of the settings that the backend looks at.
std::string describe(const Fp8Recipe& recipe);

}  // namespace accel
