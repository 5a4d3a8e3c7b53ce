// SPDX-License-Identifier: Apache-2.0
#include "config/unsupported_environment.hpp"

#include <strings.h>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

// A variable that turns on a feature which this library does not have. Variables that only describe such a feature are
// not listed: without it they have no effect, in Accelerate neither.
struct Variable {
  const char* name;
  const char* without;  // its value that asks for nothing; null: it is yes or no, and no asks for nothing
  const char* asks_for;
};
constexpr Variable kVariables[] = {
    {"ACCELERATE_USE_MEGATRON_LM", nullptr,
     "Megatron-LM by variables, which programs of Python follow; others follow ACCELERATE_CONFIG_FILE"},
    {"ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "no", "SageMaker"},
    {"ACCELERATE_IN_TPU_POD", nullptr, "TPUs"},
    {"ACCELERATE_DOWNCAST_BF16", nullptr, "bfloat16 in the place of double on TPUs"},
    {"PARALLELISM_CONFIG_CP_BACKEND", "torch", "another kind of context parallelism"},
};

constexpr const char* kSizesOfMesh[] = {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "PARALLELISM_CONFIG_DP_SHARD_SIZE",
                                        "PARALLELISM_CONFIG_TP_SIZE", "PARALLELISM_CONFIG_CP_SIZE",
                                        "PARALLELISM_CONFIG_SP_SIZE"};

// Without a type Accelerate takes it as one of several machines.
bool asks_for_sagemaker() {
  return environment_flag("ACCELERATE_USE_SAGEMAKER").value_or(false) &&
         !environment_text("ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE");
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* asks_for) {
  fail(Status::kUnsupported, "environment variable ", name, " is '", value, "', which asks for ", asks_for,
       "; this version does not support it: unset the variable");
}

bool asks(const Variable& variable, const std::string& value) {
  if (variable.without != nullptr) return strcasecmp(value.c_str(), variable.without) != 0;
  return *environment_flag(variable.name);
}

}  // namespace

void refuse_compilation(const std::string& place, const std::string& backend) {
  for (const char* const that_compiles_nothing : {"no", "eager"})
    if (strcasecmp(backend.c_str(), that_compiles_nothing) == 0) return;
  fail(Status::kUnsupported, place, " is '", backend,
       "', which asks for compilation by torch.compile; programs of Python do that with models of torch, and others "
       "have "
       "fused kernels and captured steps: expected no or eager");
}

void refuse_unsupported_environment() {
  for (const Variable& variable : kVariables) {
    const auto value = environment_text(variable.name);
    if (value && asks(variable, *value)) refuse(variable.name, *value, variable.asks_for);
  }
  if (const auto backend = environment_text("ACCELERATE_DYNAMO_BACKEND"))
    refuse_compilation("environment variable ACCELERATE_DYNAMO_BACKEND", *backend);
  if (asks_for_sagemaker())
    refuse("ACCELERATE_USE_SAGEMAKER", *environment_text("ACCELERATE_USE_SAGEMAKER"), "SageMaker");
  if (environment_flag("ACCELERATE_USE_PARALLELISM_CONFIG").value_or(true)) return;
  for (const char* const name : kSizesOfMesh)
    if (const auto value = environment_text(name); value && *value != "1")
      fail(Status::kInvalidArgument, "environment variable ", name, " is '", *value,
           "' and ACCELERATE_USE_PARALLELISM_CONFIG says no; expected both, or neither");
}

}  // namespace accel
