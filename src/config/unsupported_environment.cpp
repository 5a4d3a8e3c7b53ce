#include "config/unsupported_environment.hpp"

#include <algorithm>
#include <cctype>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

struct Flag {
  const char* variable;
  const char* asks_for;
};
constexpr Flag kFlags[] = {
    {"ACCELERATE_USE_FSDP", "FSDP"},
    {"ACCELERATE_USE_DEEPSPEED", "DeepSpeed"},
    {"ACCELERATE_USE_MEGATRON_LM", "Megatron-LM"},
};

constexpr const char* kFsdpVariables[] = {
    "FSDP_VERSION",
    "FSDP_SHARDING_STRATEGY",
    "FSDP_RESHARD_AFTER_FORWARD",
    "FSDP_OFFLOAD_PARAMS",
    "FSDP_MIN_NUM_PARAMS",
    "FSDP_AUTO_WRAP_POLICY",
    "FSDP_TRANSFORMER_CLS_TO_WRAP",
    "FSDP_BACKWARD_PREFETCH",
    "FSDP_STATE_DICT_TYPE",
    "FSDP_FORWARD_PREFETCH",
    "FSDP_USE_ORIG_PARAMS",
    "FSDP_CPU_RAM_EFFICIENT_LOADING",
    "FSDP_SYNC_MODULE_STATES",
    "FSDP_ACTIVATION_CHECKPOINTING",
    "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
    "FSDP_IGNORED_MODULES",
};

[[noreturn]] void refuse(const char* variable, const std::string& value, const char* asks_for) {
  fail(Status::kUnsupported, "environment variable ", variable, " is '", value, "', which asks for ", asks_for,
       "; this version has nothing of the kind: unset the variable");
}

}  // namespace

void refuse_unsupported_environment() {
  for (const Flag& flag : kFlags)
    if (environment_flag(flag.variable).value_or(false))
      refuse(flag.variable, *environment_text(flag.variable), flag.asks_for);
  for (const char* const variable : kFsdpVariables)
    if (const auto value = environment_text(variable)) refuse(variable, *value, "FSDP");
  // Supported axes of the mesh are options of the state.
  if (const auto value = environment_text("PARALLELISM_CONFIG_SP_SIZE"); value && *value != "1")
    refuse("PARALLELISM_CONFIG_SP_SIZE", *value, "sequence parallelism");
  if (const auto value = environment_text("ACCELERATE_DYNAMO_BACKEND")) {
    std::string backend = *value;
    std::transform(backend.begin(), backend.end(), backend.begin(), [](unsigned char c) { return std::tolower(c); });
    if (backend != "no") refuse("ACCELERATE_DYNAMO_BACKEND", *value, "compilation by torch.compile");
  }
}

}  // namespace accel
