// SPDX-License-Identifier: Apache-2.0
#include "precision/fp8_recipe.hpp"

#include <optional>

#include "base/error.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/precedence.hpp"

namespace accel::precision {
namespace {

Fp8Scaling scaling_of(const Fp8Settings& settings) {
  const std::optional<Fp8Scaling> given = settings.scaling;
  if (!settings.use_mxfp8_block_scaling)
    return given.value_or(settings.backend == Fp8Backend::kTe ? Fp8Scaling::kDelayed : Fp8Scaling::kCurrent);
  require(given.value_or(Fp8Scaling::kBlockwise) == Fp8Scaling::kBlockwise, Status::kInvalidArgument,
          "use_mxfp8_block_scaling is 1 and scaling is not BLOCKWISE; expected one of the two");
  return Fp8Scaling::kBlockwise;
}

// Accelerate's launcher sets the variables of torchao's recipe with every recipe: they only say no to what is usual.
bool of_torchao(const Setting<std::optional<bool>>& setting, bool is_usual) {
  const bool is_of_variable = setting.source.compare(0, 15, "ACCELERATE_FP8_") == 0;
  return is_of_variable ? is_usual && *setting : setting.value_or(is_usual);
}

}  // namespace

const char* name_of(Fp8Scaling scaling) {
  switch (scaling) {
    case Fp8Scaling::kDelayed:
      return "DELAYED";
    case Fp8Scaling::kRowwise:
      return "ROWWISE";
    case Fp8Scaling::kBlockwise:
      return "BLOCKWISE";
    default:
      return "CURRENT";
  }
}

const char* name_of(Fp8Format format) {
  if (format == Fp8Format::kE4m3) return "E4M3";
  return format == Fp8Format::kE5m2 ? "E5M2" : "HYBRID";
}

Fp8Recipe make_fp8_recipe(const Fp8Settings& settings) {
  check_settings(settings);
  const bool is_ao = settings.backend == Fp8Backend::kAo;
  Fp8Recipe recipe;
  recipe.scaling = scaling_of(settings);
  recipe.format = settings.format;
  recipe.amax_algorithm = settings.amax_algorithm;
  recipe.amax_history_length = settings.amax_history_length;
  recipe.margin = settings.margin;
  recipe.interval = settings.interval;
  recipe.override_forward = settings.override_forward;
  recipe.override_input_gradient = settings.override_input_gradient;
  recipe.override_weight_gradient = settings.override_weight_gradient;
  recipe.use_in_evaluation = settings.use_in_evaluation;
  recipe.skip_first_and_last = settings.skip_first_and_last.value_or(is_ao);
  recipe.pad_inner_dim = of_torchao(settings.pad_inner_dim, is_ao);
  recipe.compress_activations = settings.compress_activations;
  recipe.skip_names = settings.skip_names;
  const bool is_delayed = recipe.scaling == Fp8Scaling::kDelayed;
  const bool needs_weights = recipe.override_forward || recipe.override_input_gradient;  // unrounded
  recipe.fsdp_all_gather = of_torchao(settings.fsdp_all_gather, is_ao && !is_delayed && !needs_weights);
  require(!recipe.fsdp_all_gather || !needs_weights, Status::kInvalidArgument, "fsdp_all_gather is 1 and ",
          recipe.override_forward ? "override_forward" : "override_input_gradient",
          " is 1, a product of unrounded weights; expected one of the two");
  require(!recipe.fsdp_all_gather || !is_delayed, Status::kInvalidArgument,
          "fsdp_all_gather is 1 and scaling is DELAYED; expected CURRENT, ROWWISE or BLOCKWISE");
  return recipe;
}

std::optional<Fp8Recipe> fp8_recipe_without_call(Precision precision) {
  if (precision != Precision::kFp8) return std::nullopt;
  Fp8Settings settings;
  resolve_settings(settings);
  return make_fp8_recipe(settings);
}

}  // namespace accel::precision
