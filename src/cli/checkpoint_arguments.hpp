// SPDX-License-Identifier: Apache-2.0
// The options of the commands of accel-checkpoint. `accel` has them, too: it shows their help without loading LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace accel::program {

struct MergeArguments {
  bool unsafe_serialization = false, remove_checkpoint_dir = false;
};

// The arguments as they are given.
struct EstimateArguments {
  std::vector<std::string> dtypes = {"float32", "float16", "int8", "int4"};
  std::vector<std::string> strategies;
  std::string world_size = "1", shard_size, optimizer = "adamw", precision = "no", wrap, min_num_params,
              accumulation = "1", activation_bytes = "0", library, tensor_size, plan, context_size, expert_size,
              batch_size = "0", sequence_length = "0";
  bool sequence_parallel = false, loss_parallel = false, recompute = false, trust_remote_code = false, json = false;
};

void declare_checkpoint(CLI::App& app, bool& json);
void declare_merge_weights(CLI::App& app, MergeArguments& arguments);
void declare_estimate_memory(CLI::App& app, EstimateArguments& options);

// Returns texts that need no checkpoint: the help, and the description of the command. Nothing: accel-checkpoint has to
// run.
std::optional<std::string> shown_of_checkpoints(const std::string& command, const std::vector<std::string>& arguments);

}  // namespace accel::program
