// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/launch_option_rows.hpp"

#include <iterator>
#include <limits>

namespace accel::launch {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();
constexpr OptionInterval kAny{-kNoEnd, kNoEnd, false, false}, kFromZero{0, 65536, false, false},
    kFromOne{1, 65536, false, false}, kRestarts{0, 1e6, false, false}, kSeconds{0, 3600, true, false};

// An option of the launcher, with the default of Accelerate's parser, or null if that has none of the kind.
constexpr LaunchOption own(const OptionGroup& group, OptionKind kind, const char* name, std::string_view meaning,
                           const char* parser_default, const OptionInterval& interval = kAny) {
  return {{name, meaning.data(), kind, 0, 0, static_cast<uint16_t>(meaning.size()), interval, nullptr, nullptr, nullptr,
           nullptr, 0, false},
          &group,
          "",
          parser_default};
}
constexpr LaunchOption flag(const OptionGroup& group, const char* name, std::string_view meaning,
                            const char* parser_default, std::string_view aliases = "") {
  LaunchOption option = own(group, OptionKind::kFlag, name, meaning, parser_default);
  option.has_value = false;
  option.aliases = aliases;
  return option;
}
constexpr LaunchOption described(LaunchOption option, const char* default_value, const char* default_words = nullptr) {
  option.field.default_value = default_value;
  option.field.default_words = default_words;
  return option;
}
constexpr LaunchOption named(LaunchOption option, std::string_view aliases) {
  option.aliases = aliases;
  return option;
}
constexpr LaunchOption passed(LaunchOption option, const char* variable, const char* yes = "true",
                              const char* no = "false") {
  option.field.variable = variable;
  option.yes = yes;
  option.no = no;
  return option;
}
template <size_t kCount>
constexpr LaunchOption choice(const OptionGroup& group, const char* name, std::string_view meaning,
                              const char* parser_default, const OptionChoice (&choices)[kCount]) {
  LaunchOption option = own(group, OptionKind::kChoice, name, meaning, parser_default);
  option.field.choices = choices;
  option.field.num_choices = kCount;
  return option;
}
constexpr LaunchOption repeated(LaunchOption option) {
  option.may_repeat = true;
  return option;
}

constexpr OptionChoice kLogLevels[] = {{"debug", 0}, {"info", 1}, {"warning", 2}, {"error", 3}, {"critical", 4}};
constexpr OptionChoice kCompilers[] = {{"no", 0},
                                       {"eager", 1},
                                       {"aot_eager", 2},
                                       {"inductor", 3},
                                       {"aot_ts_nvfuser", 4},
                                       {"nvprims_nvfuser", 5},
                                       {"cudagraphs", 6},
                                       {"ofi", 7},
                                       {"fx2trt", 8},
                                       {"onnxrt", 9},
                                       {"tensorrt", 10},
                                       {"aot_torchxla_trace_once", 11},
                                       {"torhchxla_trace_once", 12},  // as Accelerate's launcher has it
                                       {"torchxla_trace_once", 12},
                                       {"tvm", 13},
                                       {"hpu_backend", 14},
                                       {"neuron", 15}};
constexpr OptionChoice kCompilerModes[] = {{"default", 0}, {"reduce-overhead", 1}, {"max-autotune", 2}};
constexpr OptionChoice kContextBackends[] = {{"torch", 0}};
constexpr OptionChoice kSequenceBackends[] = {{"deepspeed", 0}};
constexpr OptionChoice kOptLevels[] = {{"O1", 0}, {"O2", 1}};

using groups::compilation;
using groups::fp8;
using groups::hosts;
using groups::megatron;
using groups::output;
using groups::parallelism;
using groups::processes;
using groups::program;
using groups::sagemaker;
using groups::tpu;
constexpr OptionKind kInteger = OptionKind::kInteger, kNumber = OptionKind::kNumber, kText = OptionKind::kText,
                     kYesOrNo = OptionKind::kFlag;

constexpr LaunchOption kRows[] = {
    described(own(processes, kInteger, "num_processes", "Number of ranks, on all machines together.", "null", kFromOne),
              nullptr, "the number of GPUs, else 1"),
    described(own(processes, kText, "gpu_ids", "GPU ids for the ranks, \"0,1\".", "null"), "all"),
    flag(processes, "multi_gpu", "Starts one rank for each of several GPUs; fewer than 2 ranks are an error.", "false"),
    described(own(processes, kInteger, "num_cpu_threads_per_process",
                  "Number of threads of each rank that compute on the CPU. Sets OMP_NUM_THREADS.", "null", kFromOne),
              nullptr, "as the variable says, else cores / processes"),
    described(
        own(processes, kText, "config_file", "Configuration file written by accel config or by Accelerate.", "null"),
        nullptr, "ACCELERATE_CONFIG_FILE, else that of accel config if it is there and --cpu is not given"),

    named(flag(program, "module", "Runs PROGRAM as a Python module, by python3 -m.", "false"), "m"),
    flag(program, "no_python", "Executes a PROGRAM whose name ends with .py itself, not by python3.", "false"),

    described(
        own(hosts, kInteger, "num_machines", "Number of machines; each runs this same command.", "null", kFromOne),
        "1"),
    described(own(hosts, kInteger, "machine_rank", "Number of this machine, from 0.", "null", kFromZero), "0"),
    flag(hosts, "same_network", "No effect: the machines must always reach the address of rank 0.", "false"),
    described(own(hosts, kText, "rdzv_backend",
                  "Numbering of the machines: static, by --machine-rank, or c10d, in the order in which they join.",
                  "\"static\""),
              "static"),
    own(hosts, kText, "rdzv_conf", "Settings of the rendezvous: NAME=VALUE, separated by commas.", "\"\""),
    described(own(hosts, kInteger, "max_restarts", "Number of times that all ranks are restarted when one fails.", "0",
                  kRestarts),
              "0"),
    described(own(hosts, kNumber, "monitor_interval",
                  "No effect: the launcher is notified at once when a rank ends. Accepted as in Accelerate.", "0.1",
                  kSeconds),
              "0.1"),
    described(own(hosts, kText, "role", "Name of the ranks in messages.", "\"default\""), "default"),
    own(hosts, kText, "mpirun_hostfile", "Hostfile for mpirun, which then starts the ranks.", "null"),
    own(hosts, kText, "nnodes", "Number of hosts, or MIN:MAX if hosts may join and leave.", nullptr),
    own(hosts, kText, "rdzv_endpoint", "Address HOST:PORT of the coordinator, else of rank 0's host.", nullptr),
    described(own(hosts, kText, "rdzv_timeout", "Time limit for all hosts to join, in seconds.", nullptr), "600"),
    own(hosts, kText, "secret_file", "File of mode 0600 with the secret that the launchers share.", nullptr),
    own(hosts, kText, "interface", "Network interface of the job, or its address.", nullptr),
    named(own(hosts, kText, "deepspeed_hostfile",
              "Hostfile with lines HOST [slots=N]; this launcher starts the others by ssh.", "null"),
          "hostfile"),
    described(own(hosts, kText, "ssh_command", "Command that reaches the other hosts.", nullptr), "ssh"),
    own(hosts, kText, "ssh_options", "Options of the ssh command, as words of a shell.", nullptr),
    described(own(hosts, kText, "environment",
                  "Variables of the launcher's environment for the ranks: names, NAME*, or none.", nullptr),
              nullptr, "all"),
    own(hosts, kText, "deepspeed_exclusion_filter", "Hosts of the hostfile that are left out, \"worker-1@worker-2\".",
        "null"),
    own(hosts, kText, "deepspeed_inclusion_filter", "Hosts of the hostfile that are used; the others are left out.",
        "null"),
    own(hosts, kText, "deepspeed_multinode_launcher",
        "No effect: the hosts of a hostfile are always reached by ssh. Accepted as in Accelerate.", "null"),

    named(flag(output, "quiet", "Shows only errors of the launcher itself.", "false"), "q"),
    passed(choice(output, "log_level", "Log level of the launcher and of the ranks.", nullptr, kLogLevels),
           "ACCELERATE_LOG_LEVEL"),
    own(output, kText, "log_dir", "Folder for the output of each rank, in rank_0.log and so on.", "null"),
    named(
        described(own(output, kText, "tee",
                      "Streams of all ranks that are shown here: 0 none, 1 stdout, 2 stderr, 3 both, or per local rank "
                      "\"0:3,1:2\".",
                      "\"0\""),
                  "0"),
        "t"),
    described(own(output, kText, "redirects",
                  "Streams that are not shown here, only in --log-dir, by the numbers of --tee.", nullptr),
              "0"),
    flag(output, "prefix", "Shows the output of all ranks, each line after \"[rank 1] \".", nullptr),
    flag(output, "dry_run", "Prints the programs and their environments instead of starting them.", nullptr),
    flag(output, "json", "Prints the plan of --dry-run as JSON.", nullptr),

    passed(flag(parallelism, "use_parallelism_config", "Passes the axes of parallelism to the ranks, also those of 1.",
                "false"),
           "ACCELERATE_USE_PARALLELISM_CONFIG"),
    described(passed(choice(parallelism, "parallelism_config_cp_backend", "Backend of context parallelism.",
                            "\"torch\"", kContextBackends),
                     "PARALLELISM_CONFIG_CP_BACKEND"),
              "torch"),
    passed(own(parallelism, kText, "parallelism_config_cp_comm_strategy",
               "Collective by which context parallelism exchanges keys and values: allgather or alltoall.",
               "\"allgather\""),
           "PARALLELISM_CONFIG_CP_COMM_STRATEGY"),
    passed(own(parallelism, kInteger, "parallelism_config_sp_size",
               "Ranks that share sequences by heads (Ulysses), in the place of context parallelism; 1: none.", "1",
               kFromOne),
           "PARALLELISM_CONFIG_SP_SIZE"),
    passed(choice(parallelism, "parallelism_config_sp_backend", "Backend of sequence parallelism.", "\"deepspeed\"",
                  kSequenceBackends),
           "PARALLELISM_CONFIG_SP_BACKEND"),
    passed(own(parallelism, kInteger, "parallelism_config_sp_seq_length", "Sequence length of sequence parallelism.",
               "null", kAny),
           "PARALLELISM_CONFIG_SP_SEQ_LENGTH"),
    passed(own(parallelism, kYesOrNo, "parallelism_config_sp_seq_length_is_variable",
               "Whether sequence lengths of sequence parallelism vary.", "true"),
           "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", "True", "False"),
    passed(own(parallelism, kText, "parallelism_config_sp_attn_implementation", "Attention of sequence parallelism.",
               "\"sdpa\""),
           "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION"),

    passed(described(choice(compilation, "dynamo_backend", "What compiles models of torch.", "null", kCompilers), "no"),
           "ACCELERATE_DYNAMO_BACKEND"),
    passed(choice(compilation, "dynamo_mode", "What it compiles for.", "\"default\"", kCompilerModes),
           "ACCELERATE_DYNAMO_MODE"),
    passed(flag(compilation, "dynamo_use_fullgraph", "A model must be one graph.", "false"),
           "ACCELERATE_DYNAMO_USE_FULLGRAPH", "True", "False"),
    passed(flag(compilation, "dynamo_use_dynamic", "What is compiled is for any shapes.", "false"),
           "ACCELERATE_DYNAMO_USE_DYNAMIC", "True", "False"),
    passed(flag(compilation, "dynamo_use_regional_compilation",
                "Repeated blocks are compiled once, instead of models as wholes.", "false"),
           "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "True", "False"),

    own(fp8, kText, "fp8_override_linear_precision",
        "Which products are computed in bfloat16, as yes,no,no: the forward, the inputs' gradients, the weights'. Sets "
        "ACCELERATE_FP8_OVERRIDE_FPROP, _DGRAD and _WGRAD.",
        "[false,false,false]"),
    passed(named(choice(fp8, "fp8_opt_level", "The level of MS-AMP; it has no effect.", "\"O2\"", kOptLevels),
                 "fp8_optimization_level"),
           "ACCELERATE_FP8_OPT_LEVEL"),

    passed(flag(megatron, "use_megatron_lm", "Splits and trains models by the settings below, in programs of Python.",
                "false"),
           "ACCELERATE_USE_MEGATRON_LM"),
    passed(own(megatron, kInteger, "megatron_lm_tp_degree",
               "Ranks that share the layers of a model (tensor parallelism).", "1", kFromOne),
           "MEGATRON_LM_TP_DEGREE"),
    passed(own(megatron, kYesOrNo, "megatron_lm_use_custom_fsdp", "Whether parameters are sharded over the data ranks.",
               "false"),
           "MEGATRON_LM_USE_CUSTOM_FSDP", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_no_load_optim",
               "Whether the state of the optimizer stays as it is when a checkpoint is loaded.", "false"),
           "MEGATRON_LM_NO_LOAD_OPTIM", "True", "False"),
    passed(
        own(megatron, kYesOrNo, "megatron_lm_eod_mask_loss", "Whether end tokens are left out of the loss.", "false"),
        "MEGATRON_LM_EOD_MASK_LOSS", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_overlap_cpu_optimizer_d2h_h2d",
               "Whether copies of an offloaded optimizer overlap; they always do.", "false"),
           "MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_no_save_optim", "Whether checkpoints have no state of the optimizer.",
               "false"),
           "MEGATRON_LM_NO_SAVE_OPTIM", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_optimizer_cpu_offload",
               "Whether the optimizer and its states are in the memory of the host.", "false"),
           "MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_use_precision_aware_optimizer",
               "No effect: the optimizer decides the types of its states.", "false"),
           "MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER", "True", "False"),
    passed(own(megatron, kInteger, "megatron_lm_decoder_last_pipeline_num_layers", "Layers of the last stage.", "null",
               kFromOne),
           "MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS"),
    passed(own(megatron, kInteger, "megatron_lm_pp_degree", "Stages of a model (pipeline parallelism).", "1", kFromOne),
           "MEGATRON_LM_PP_DEGREE"),
    passed(own(megatron, kInteger, "megatron_lm_num_micro_batches", "Micro-batches of a step.", "null", kFromOne),
           "MEGATRON_LM_NUM_MICRO_BATCHES"),
    passed(own(megatron, kYesOrNo, "megatron_lm_sequence_parallelism",
               "Whether sequences are split between split layers.", "null"),
           "MEGATRON_LM_SEQUENCE_PARALLELISM", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_recompute_activations",
               "Whether layers compute all but their products again in the backward.", "null"),
           "MEGATRON_LM_RECOMPUTE_ACTIVATIONS", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_use_distributed_optimizer",
               "Whether gradients and states of the optimizer are sharded over the data ranks.", "null"),
           "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", "True", "False"),
    passed(own(megatron, kNumber, "megatron_lm_gradient_clipping", "Largest norm of the gradients; 0: any.", "1.0"),
           "MEGATRON_LM_GRADIENT_CLIPPING"),
    passed(own(megatron, kText, "megatron_lm_recompute_granularity", "What layers compute again: full or selective.",
               "null"),
           "MEGATRON_LM_RECOMPUTE_GRANULARITY"),
    passed(own(megatron, kText, "megatron_lm_recompute_method", "Which layers do with full: uniform or block.", "null"),
           "MEGATRON_LM_RECOMPUTE_METHOD"),
    passed(own(megatron, kInteger, "megatron_lm_recompute_num_layers",
               "Every how many layers one does with uniform, the first so many with block.", "null", kFromOne),
           "MEGATRON_LM_RECOMPUTE_NUM_LAYERS"),
    passed(own(megatron, kYesOrNo, "megatron_lm_attention_backend",
               "No effect: the engine chooses how attention is computed.", "null"),
           "MEGATRON_LM_ATTENTION_BACKEND", "True", "False"),
    passed(own(megatron, kInteger, "megatron_lm_expert_model_parallel_size", "Ranks that share experts.", "null",
               kFromOne),
           "MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE"),
    passed(own(megatron, kInteger, "megatron_lm_context_parallel_size",
               "Ranks that share sequences; 1 unless it is given.", "null", kFromOne),
           "MEGATRON_LM_CONTEXT_PARALLEL_SIZE"),
    passed(own(megatron, kNumber, "megatron_lm_attention_dropout", "Dropout of attention that the model must have.",
               "null"),
           "MEGATRON_LM_ATTENTION_DROPOUT"),
    passed(own(megatron, kNumber, "megatron_lm_hidden_dropout", "Dropout that the model must have elsewhere.", "null"),
           "MEGATRON_LM_HIDDEN_DROPOUT"),
    passed(own(megatron, kYesOrNo, "megatron_lm_attention_softmax_in_fp32",
               "Whether the softmax of attention is in float32; it always is.", "null"),
           "MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32", "True", "False"),
    passed(own(megatron, kInteger, "megatron_lm_expert_tensor_parallel_size", "Ranks that share each expert.", "null",
               kFromOne),
           "MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE"),
    passed(own(megatron, kYesOrNo, "megatron_lm_calculate_per_token_loss",
               "Whether a loss is the mean over all tokens of a step, and not of the means of micro-batches.", "null"),
           "MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS", "True", "False"),
    passed(own(megatron, kYesOrNo, "megatron_lm_use_rotary_position_embeddings",
               "Whether the model must have rotary embeddings.", "null"),
           "MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS", "True", "False"),

    flag(tpu, "tpu", "", "false"),
    flag(tpu, "tpu_cluster", "", "false"),
    flag(tpu, "no_tpu_cluster", "", "false"),
    flag(tpu, "tpu_use_sudo", "", "false"),
    repeated(own(tpu, kText, "vm", "", "null")),
    repeated(own(tpu, kText, "env", "", "null")),
    own(tpu, kText, "main_training_function", "", "null"),
    flag(tpu, "downcast_bf16", "", "false"),

    own(sagemaker, kText, "aws_access_key_id", "", "null"),
    own(sagemaker, kText, "aws_secret_access_key", "", "null"),
};

}  // namespace

std::vector<LaunchOption> own_launch_options() { return {std::begin(kRows), std::end(kRows)}; }

}  // namespace accel::launch
