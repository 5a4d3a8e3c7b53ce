#include "config/fp8_recipe.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <sstream>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

std::string in_capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// One of a few words, in capitals or not.
Setting<std::string> word(const char* name, const std::optional<std::string>& given, const char* variable,
                          const char* otherwise, std::initializer_list<const char*> allowed) {
  auto setting = resolve<std::string>(given, variable, environment_text(variable), otherwise);
  std::string expected;
  for (const char* choice : allowed) {
    if (in_capitals(setting.value) == in_capitals(choice)) {
      setting.value = choice;
      return setting;
    }
    expected += std::string(expected.empty() ? "" : ", ") + choice;
  }
  fail(Status::kInvalidArgument, name, " is '", setting.value, "' (from ", setting.source, "); expected one of ",
       expected);
}

Setting<int64_t> number(const char* name, const std::optional<int64_t>& given, const char* variable, int64_t otherwise,
                        int64_t smallest) {
  auto setting = resolve(given, variable, environment_integer(variable), otherwise);
  require(setting.value >= smallest, Status::kInvalidArgument, name, " is ", setting.value, " (from ", setting.source,
          "); expected at least ", smallest);
  return setting;
}

Setting<bool> flag(const std::optional<bool>& given, const char* variable, bool otherwise) {
  return resolve(given, variable, environment_flag(variable), otherwise);
}

// Calls `visit` with the name of each setting, the backend that looks at it, and where it came from.
template <typename Visit>
void visit_settings(const Fp8Recipe& recipe, Visit&& visit) {
  visit("fp8_format", Fp8Backend::kTransformerEngine, recipe.fp8_format);
  visit("margin", Fp8Backend::kTransformerEngine, recipe.margin);
  visit("interval", Fp8Backend::kTransformerEngine, recipe.interval);
  visit("amax_history_len", Fp8Backend::kTransformerEngine, recipe.amax_history_len);
  visit("amax_compute_algo", Fp8Backend::kTransformerEngine, recipe.amax_compute_algo);
  visit("override_fprop", Fp8Backend::kTransformerEngine, recipe.override_fprop);
  visit("override_dgrad", Fp8Backend::kTransformerEngine, recipe.override_dgrad);
  visit("override_wgrad", Fp8Backend::kTransformerEngine, recipe.override_wgrad);
  visit("use_autocast_during_eval", Fp8Backend::kTransformerEngine, recipe.use_autocast_during_eval);
  visit("use_mxfp8_block_scaling", Fp8Backend::kTransformerEngine, recipe.use_mxfp8_block_scaling);
  visit("pad_inner_dim", Fp8Backend::kTorchAo, recipe.pad_inner_dim);
  visit("enable_fsdp_float8_all_gather", Fp8Backend::kTorchAo, recipe.enable_fsdp_float8_all_gather);
  visit("opt_level", Fp8Backend::kMsAmp, recipe.opt_level);
}

const char* shown(bool value) { return value ? "yes" : "no"; }
template <typename T>
const T& shown(const T& value) {
  return value;
}

Fp8Backend backend_of(const std::string& name) {
  if (name == "TE") return Fp8Backend::kTransformerEngine;
  return name == "AO" ? Fp8Backend::kTorchAo : Fp8Backend::kMsAmp;
}

}  // namespace

Fp8Recipe resolve_fp8_recipe(const Fp8RecipeOptions& options) {
  Fp8Recipe recipe;
  recipe.backend_name = word("backend", options.backend, "ACCELERATE_FP8_BACKEND", "AO", {"TE", "AO", "MSAMP"});
  recipe.backend = backend_of(recipe.backend_name);
  recipe.fp8_format =
      word("fp8_format", options.fp8_format, "ACCELERATE_FP8_FORMAT", "HYBRID", {"E4M3", "E5M2", "HYBRID"});
  recipe.amax_compute_algo = word("amax_compute_algo", options.amax_compute_algo, "ACCELERATE_FP8_AMAX_COMPUTE_ALGO",
                                  "most_recent", {"most_recent", "max"});
  recipe.opt_level = word("opt_level", options.opt_level, "ACCELERATE_FP8_OPT_LEVEL", "O2", {"O1", "O2"});
  recipe.margin = number("margin", options.margin, "ACCELERATE_FP8_MARGIN", 0, 0);
  recipe.interval = number("interval", options.interval, "ACCELERATE_FP8_INTERVAL", 1, 1);
  recipe.amax_history_len =
      number("amax_history_len", options.amax_history_len, "ACCELERATE_FP8_AMAX_HISTORY_LEN", 1024, 1);
  recipe.use_autocast_during_eval =
      flag(options.use_autocast_during_eval, "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", false);
  recipe.override_fprop = flag(options.override_fprop, "ACCELERATE_FP8_OVERRIDE_FPROP", false);
  recipe.override_dgrad = flag(options.override_dgrad, "ACCELERATE_FP8_OVERRIDE_DGRAD", false);
  recipe.override_wgrad = flag(options.override_wgrad, "ACCELERATE_FP8_OVERRIDE_WGRAD", false);
  recipe.use_mxfp8_block_scaling =
      flag(options.use_mxfp8_block_scaling, "ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING", false);
  recipe.pad_inner_dim = flag(options.pad_inner_dim, "ACCELERATE_FP8_PAD_INNER_DIM", true);
  recipe.enable_fsdp_float8_all_gather =
      flag(options.enable_fsdp_float8_all_gather, "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", true);
  visit_settings(recipe, [&](const char* name, Fp8Backend backend, const auto& setting) {
    require(backend == recipe.backend || setting.source != "call", Status::kInvalidArgument, name,
            " is given and the backend is ", recipe.backend_name.value, ", which does not look at it; leave it unset");
  });
  return recipe;
}

std::string describe(const Fp8Recipe& recipe) {
  std::ostringstream out;
  out << "backend = " << recipe.backend_name.value << " (" << recipe.backend_name.source << ")\n";
  visit_settings(recipe, [&](const char* name, Fp8Backend backend, const auto& setting) {
    if (backend == recipe.backend) out << name << " = " << shown(setting.value) << " (" << setting.source << ")\n";
  });
  return out.str();
}

}  // namespace accel
