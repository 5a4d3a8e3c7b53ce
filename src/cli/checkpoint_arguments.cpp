// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_arguments.hpp"

#include "cli/command_arguments.hpp"
#include "cli/command_description.hpp"

namespace accel::program {
namespace {

constexpr char kCheckpointHelp[] = R"(Looks at checkpoints that accel_save_state() or Accelerate wrote.

Commands:
  verify FOLDER        compares all files with the hashes of the manifest; exit status 1 if one is damaged
  list [FOLDER]        the checkpoints of a project, by their numbers
  show FOLDER          the files, and the tensors in safetensors
  diff FOLDER OTHER    files and tensors that differ; exit status 1 if there are any
)";

constexpr char kMergeHelp[] =
    R"(Makes one file of the weights that several ranks wrote in parts: the parts in a checkpoint of libaccel, or the folder
pytorch_model_fsdp_0 of one of Accelerate. DESTINATION is a folder, which is made if it is missing.
)";

constexpr char kEstimateHelp[] =
    R"(Estimates the memory that a model takes, from the names and shapes of its weights, which are not loaded. PATH is a file
of safetensors or of torch, an index of several, or a folder with one of them. Without weights it is the config.json of
a model that the library knows, or a folder with one; where python3 has the packages transformers and accel, of any model
of transformers, or its name on the hub; with timm, the name of one of its models.
The first table is that of Accelerate: the weights in each dtype, and training them on one device. The second one has the
peak of a step on each rank, by what takes it; parameters are float32. Operators and allocators take more.
)";

}  // namespace

void declare_checkpoint(CLI::App& app, bool& json) {
  app.name("accel checkpoint")->description(kCheckpointHelp);
  app.add_flag("--json", json, "Prints JSON.")->group("Options");
  add_help(app, " [OPTION ...] COMMAND FOLDER ... [OPTION ...]");
}

void declare_merge_weights(CLI::App& app, MergeArguments& arguments) {
  app.name("accel merge-weights")->description(kMergeHelp);
  app.add_flag("--unsafe-serialization,--unsafe_serialization", arguments.unsafe_serialization,
               "Writes pytorch_model.bin, not model.safetensors.")
      ->group("Options");
  app.add_flag("--remove-checkpoint-dir,--remove_checkpoint_dir", arguments.remove_checkpoint_dir,
               "Removes the parts afterwards.")
      ->group("Options");
  add_help(app, " [OPTION ...] CHECKPOINT_FOLDER DESTINATION");
}

void declare_estimate_memory(CLI::App& app, EstimateArguments& options) {
  app.name("accel estimate-memory")->description(kEstimateHelp);
  const auto add = [&](const char* names, auto& value, const char* description, const char* type) {
    app.add_option(names, value, description)->type_name(type)->group("Options");
  };
  add("--dtypes", options.dtypes, "Rows of the first table: float32, float16, int8, int4. Default: all.", "DTYPE ...");
  add("--world-size,--world_size", options.world_size, "Number of ranks that train together. Default: 1.", "N");
  add("--strategy", options.strategies,
      "Rows of the second table: ddp, shard_grad_op, full_shard, hybrid_shard, hybrid_shard_zero2, zero0 to zero3. "
      "Default: the first three, and the hybrid ones with --shard-size.",
      "NAME ...");
  add("--shard-size,--shard_size", options.shard_size,
      "Number of ranks that share one copy of the parameters, for the hybrid strategies.", "N");
  add("--tensor-parallel-size,--tensor_parallel_size", options.tensor_size,
      "Number of ranks that have parts of the same layers. Default: 1.", "N");
  add("--tensor-parallel-plan,--tensor_parallel_plan", options.plan,
      "Rules of how layers are split, such as 'layers.*.up colwise; layers.*.down rowwise'. Default: those of the kind "
      "of model that a config.json describes.",
      "RULES");
  app.add_flag("--sequence-parallel,--sequence_parallel", options.sequence_parallel,
               "Splits the sequence between split layers.")
      ->group("Options");
  app.add_flag("--loss-parallel,--loss_parallel", options.loss_parallel, "Keeps the scores of a split head split.")
      ->group("Options");
  add("--context-parallel-size,--context_parallel_size", options.context_size,
      "Number of ranks that share each sequence. Default: 1.", "N");
  add("--expert-parallel-size,--expert_parallel_size", options.expert_size,
      "Number of ranks that have different experts of a layer. Default: 1.", "N");
  add("--optimizer", options.optimizer,
      "Optimizer: adamw, adam, adamw_8bit, sgd, sgd_momentum, adagrad, lion or adafactor. Default: adamw.", "NAME");
  add("--mixed-precision,--mixed_precision", options.precision,
      "Precision of the training: no, bf16 or fp16. Default: no.", "NAME");
  add("--wrap", options.wrap,
      "Modules that are gathered together, separated by commas: layers.N for the members of a list 'layers', "
      "or the last part of a name; of a config.json the names of classes. Default: the members of the outermost lists.",
      "NAME");
  add("--min-num-params,--min_num_params", options.min_num_params,
      "Number of parameters from which a module is gathered together, instead of --wrap.", "N");
  add("--gradient-accumulation-steps,--gradient_accumulation_steps", options.accumulation,
      "Number of micro-batches for each step. Default: 1.", "N");
  add("--activation-bytes,--activation_bytes", options.activation_bytes,
      "Bytes that a forward keeps for its backward on each rank, beside those of --batch-size. Default: 0.", "N");
  add("--batch-size,--batch_size", options.batch_size,
      "Rows of a micro-batch, of which the activations of a config.json's model are estimated. Default: 0, they are "
      "not.",
      "N");
  add("--sequence-length,--sequence_length", options.sequence_length, "Positions of a row. Default: 0.", "N");
  app.add_flag("--recompute", options.recompute, "Keeps the inputs of the modules of --wrap, and computes them again.")
      ->group("Options");
  add("--library-name,--library_name", options.library,
      "Library of a model without weights: transformers or timm. Default: as the hub says, else transformers.", "NAME");
  app.add_flag("--trust-remote-code,--trust_remote_code", options.trust_remote_code,
               "Runs the code that comes with a model of transformers on this machine.")
      ->group("Options");
  app.add_flag("--json", options.json, "Prints one JSON object, with sizes in bytes.")->group("Options");
  add_help(app, " [OPTION ...] PATH [OPTION ...]");
}

std::optional<std::string> shown_of_checkpoints(const std::string& command, const std::vector<std::string>& arguments) {
  if (arguments.size() != 1 || (arguments[0] != "--help" && arguments[0] != "-h" && arguments[0] != kDescribe))
    return std::nullopt;
  CLI::App app;
  MergeArguments merge;
  EstimateArguments estimate;
  bool json = false;
  if (command == "merge-weights")
    declare_merge_weights(app, merge);
  else if (command == "estimate-memory")
    declare_estimate_memory(app, estimate);
  else
    declare_checkpoint(app, json);
  return parse(app, arguments).shown;
}

}  // namespace accel::program
