// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_questions.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel::program {
namespace {

struct MachineKind {
  const char* shown;
  const char* type;   // distributed_type
  const char* units;  // what processes are counted by
};
constexpr MachineKind kMachineKinds[] = {
    {"No distributed training", "NO", ""}, {"multi-CPU", "MULTI_CPU", "processes"},
    {"multi-XPU", "MULTI_XPU", "XPUs"},    {"multi-HPU", "MULTI_HPU", "HPUs"},
    {"multi-GPU", "MULTI_GPU", "GPUs"},    {"multi-NPU", "MULTI_NPU", "NPUs"},
    {"multi-MLU", "MULTI_MLU", "MLUs"},    {"multi-SDAA", "MULTI_SDAA", "SDAAs"},
    {"multi-MUSA", "MULTI_MUSA", "MUSAs"},
};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return text;
}

std::string with_home(const std::string& path) {
  return path.compare(0, 2, "~/") == 0 ? environment_text("HOME").value_or("~") + path.substr(1) : path;
}

// Accelerate asks for it, so that its files can be written.
constexpr const char* kRefused = " is not in this version, and accel launch refuses it";

class ClusterQuestionnaire {
 public:
  ClusterQuestionnaire(const Questions& ask, size_t num_gpus) : ask_(ask), num_gpus_(num_gpus) {}

  Json run() {
    choose_machine();
    ask_for_machines();
    ask_for_processor();
    ask_for_compilation();
    if (!is_of_processors()) ask_for_deepspeed();
    if (has_accelerators()) ask_for_sharding();
    if (fsdp_version_ == 2) ask_for_parallelism();
    if (type_ == "MULTI_GPU") ask_for_megatron();
    ask_for_processes();
    ask_for_gpus();
    ask_for_precision();
    set("compute_environment", Json("LOCAL_MACHINE"));
    set("distributed_type", Json(type_));
    set("downcast_bf16", Json("no"));
    set("main_training_function", Json("main"));
    set("tpu_env", Json(Json::Items()));
    set("tpu_use_cluster", Json(false));
    set("tpu_use_sudo", Json(false));
    for (auto& [name, members] : sections_) set(name, Json(std::move(members)));
    return Json(std::move(members_));
  }

 private:
  using Members = Json::Members;

  void set(const char* name, Json value) { members_.emplace_back(name, std::move(value)); }
  Members& section(const char* name) { return sections_.emplace_back(name, Members()).second; }

  bool yes(const char* question, bool otherwise = false) const { return ask_.yes(question, otherwise); }
  Json flag(const char* question, bool otherwise = false) const { return Json(yes(question, otherwise)); }
  Json count(const char* question, int64_t otherwise = 1, int64_t low = 1) const {
    return Json::number(ask_.integer(question, otherwise, low));
  }
  Json choice(const char* question, const std::vector<std::string>& names, size_t otherwise = 0) const {
    return Json(ask_.choice(question, names, otherwise));
  }
  Json answer(const char* question, const std::string& otherwise = "") const {
    return Json(ask_.text(question, otherwise));
  }

  bool is_of_processors() const { return type_ == "MULTI_CPU"; }
  // Several, and nothing chosen yet that shards.
  bool has_accelerators() const { return type_.compare(0, 6, "MULTI_") == 0 && !is_of_processors(); }

  void choose_machine() {
    std::vector<std::string> shown;
    for (const MachineKind& kind : kMachineKinds) shown.emplace_back(kind.shown);
    const std::string chosen = ask_.choice("Which kind of machine is it?", shown);
    kind_ = &*std::find_if(std::begin(kMachineKinds), std::end(kMachineKinds),
                           [&chosen](const MachineKind& kind) { return kind.shown == chosen; });
    type_ = kind_->type;
  }

  void ask_for_machines() {
    int64_t rank = 0;
    bool is_same_network = true, is_checked = false;
    std::string rendezvous = "static";
    if (type_ != "NO") {
      num_machines_ = ask_.integer("How many machines", 1);
      if (num_machines_ > 1) {
        rank = ask_.integer("Which of them is this one, counted from 0", 0, 0, num_machines_ - 1);
        set("main_process_ip", answer("What is the address of machine 0"));
        set("main_process_port",
            Json::number(ask_.integer("At which of its ports do the processes meet", 29500, 1, 65535)));
        is_same_network = yes("Are all machines in one local network?", true);
        if (!is_same_network) rendezvous = ask_.text("How do they find each other, static or c10d", "static");
      }
      is_checked = yes("Should collectives be checked for shapes that differ? It costs time");
    }
    set("num_machines", Json::number(num_machines_));
    set("machine_rank", Json::number(rank));
    set("same_network", Json(is_same_network));
    set("rdzv_backend", Json(rendezvous));
    set("debug", Json(is_checked));
  }

  void ask_for_processor() {
    uses_cpu_ =
        is_of_processors() || (type_ == "NO" && yes("Should the processor be used even if there is an accelerator?"));
    set("use_cpu", Json(uses_cpu_));
    if (is_of_processors() && yes("Should mpirun start the processes?"))
      section("mpirun_config")
          .emplace_back("mpirun_hostfile", Json(with_home(ask_.text("Where is the hostfile of mpirun", "~/hostfile"))));
  }

  void ask_for_compilation() {
    if (!yes("Should models of torch be compiled by torch.compile?")) return;
    Members& compiled = section("dynamo_config");
    compiled.emplace_back("dynamo_backend",
                          Json(upper(ask_.choice("Which backend compiles?",
                                                 {"eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser",
                                                  "cudagraphs", "ofi", "fx2trt", "onnxrt", "tensorrt",
                                                  "aot_torchxla_trace_once", "torchxla_trace_once", "tvm"},
                                                 2))));
    if (!yes("Should its defaults be changed?")) return;
    compiled.emplace_back("dynamo_mode", choice("Which mode?", {"default", "reduce-overhead", "max-autotune"}));
    compiled.emplace_back("dynamo_use_fullgraph", flag("Must the model be one graph?"));
    compiled.emplace_back("dynamo_use_dynamic", flag("Should shapes be dynamic?"));
    compiled.emplace_back("dynamo_use_regional_compilation", flag("Should repeated blocks be compiled once?"));
  }

  void ask_for_deepspeed() {
    if (!yes("Should training be sharded with the settings of DeepSpeed?")) return;
    type_ = "DEEPSPEED";
    Members& settings = section("deepspeed_config");
    has_deepspeed_file_ = yes("Are its settings in a JSON file?");
    if (has_deepspeed_file_)
      settings.emplace_back("deepspeed_config_file", answer("Where is that file", "none"));
    else
      ask_for_zero(settings);
    settings.emplace_back("zero3_init_flag", flag("Should models be made in parts from the start, with stage 3?"));
    if (yes("Are there layers of experts (MoE)?"))
      settings.emplace_back("deepspeed_moe_layer_cls_names", answer("What are the classes of these layers, by commas"));
    if (num_machines_ > 1) ask_for_hostfile(settings);
  }

  void ask_for_zero(Members& settings) {
    const std::string stage = ask_.choice(
        "Which stage: 1 shards optimizers, 2 gradients as well, 3 parameters as well?", {"0", "1", "2", "3"}, 2);
    settings.emplace_back("zero_stage", Json::number_of(stage));
    if (stage >= "2") {
      const std::string optimizer = ask_.choice("Where are the states of optimizers?", {"none", "cpu", "nvme"});
      const std::string parameters = ask_.choice("Where are the parameters?", {"none", "cpu", "nvme"});
      settings.emplace_back("offload_optimizer_device", Json(optimizer));
      settings.emplace_back("offload_param_device", Json(parameters));
      if (parameters == "nvme") settings.emplace_back("offload_param_nvme_path", answer("In which folder", "/nvme"));
      if (optimizer == "nvme")
        settings.emplace_back("offload_optimizer_nvme_path", answer("In which folder are the optimizers'", "/nvme"));
    }
    settings.emplace_back("gradient_accumulation_steps", count("Over how many steps are gradients accumulated"));
    if (yes("Should gradients be clipped?"))
      settings.emplace_back("gradient_clipping", Json::number(ask_.number("To which norm", 1.0)));
    if (stage == "3")
      settings.emplace_back("zero3_save_16bit_model", flag("Should models be saved whole, in 16 bits?"));
  }

  void ask_for_hostfile(Members& settings) {
    const std::string launcher = ask_.choice("What starts the processes of the other machines?",
                                             {"pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"});
    settings.emplace_back("deepspeed_multinode_launcher", Json(launcher));
    if (launcher == "standard") return;
    settings.emplace_back("deepspeed_hostfile", answer("Where is the hostfile, with lines as 'name slots=8'"));
    ask_.say(
        "Filters of hosts are not in this version, and accel launch refuses them; name the hosts in the hostfile.");
    if (yes("Should some of its hosts or slots be left out?"))
      settings.emplace_back("deepspeed_exclusion_filter", answer("Which, as 'name:0,1'"));
    if (yes("Should only some of them be used?"))
      settings.emplace_back("deepspeed_inclusion_filter", answer("Which, as 'name:0,1'"));
  }

  void ask_for_sharding() {
    if (!yes("Should models be fully sharded (FSDP)?")) return;
    type_ = "FSDP";
    Members& settings = section("fsdp_config");
    fsdp_version_ = ask_.choice("Which version of FSDP?", {"1", "2"}, 1) == "1" ? 1 : 2;
    const bool is_first = fsdp_version_ == 1;
    settings.emplace_back("fsdp_version", Json::number(int64_t{fsdp_version_}));
    settings.emplace_back("fsdp_reshard_after_forward",
                          is_first ? choice("What is sharded?", {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                                 "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"})
                                   : flag("Should parameters be sharded again after forward?", true));
    settings.emplace_back("fsdp_offload_params", flag("Should parameters and gradients be stored in host memory?"));
    ask_for_wrapping(settings);
    if (is_first)
      settings.emplace_back("fsdp_backward_prefetch", choice("When are parameters gathered in backward?",
                                                             {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"}));
    settings.emplace_back(
        "fsdp_state_dict_type",
        is_first ? choice("How are states saved?", {"FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"})
                 : choice("How are states saved?", {"SHARDED_STATE_DICT", "FULL_STATE_DICT"}));
    if (is_first) {
      settings.emplace_back("fsdp_forward_prefetch", flag("Should forward gather parameters ahead?"));
      settings.emplace_back("fsdp_use_orig_params", flag("Should parameters keep their names and shapes?", true));
    }
    const bool is_efficient = yes("Should rank 0 alone load the weights, and send them?", true);
    settings.emplace_back("fsdp_cpu_ram_efficient_loading", Json(is_efficient));
    if (is_first)
      settings.emplace_back("fsdp_sync_module_states",
                            Json(is_efficient || yes("Should rank 0 send its parameters at the start?", true)));
    settings.emplace_back("fsdp_activation_checkpointing", flag("Should activations be computed again in backward?"));
  }

  void ask_for_wrapping(Members& settings) {
    const std::string policy =
        ask_.choice("Which modules are sharded as one?", {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"});
    settings.emplace_back("fsdp_auto_wrap_policy", Json(policy));
    if (policy == "SIZE_BASED_WRAP")
      settings.emplace_back("fsdp_min_num_params", count("From how many parameters on", 100000000));
    if (policy == "TRANSFORMER_BASED_WRAP" && !yes("Those that the model names itself (_no_split_modules)?"))
      settings.emplace_back("fsdp_transformer_layer_cls_to_wrap", answer("What are their classes, by commas"));
  }

  void ask_for_parallelism() {
    if (!yes("Should several kinds of parallelism be combined?")) return;
    Members& sizes = section("parallelism_config");
    sizes.emplace_back("parallelism_config_dp_replicate_size", count("How many replicas of the model"));
    sizes.emplace_back("parallelism_config_dp_shard_size", count("Over how many ranks is each sharded"));
    sizes.emplace_back("parallelism_config_tp_size", count("Over how many are layers split (tensor parallelism)"));
    const int64_t context = ask_.integer("Over how many are sequences split (context parallelism)", 1);
    sizes.emplace_back("parallelism_config_cp_size", Json::number(context));
    if (context > 1)
      sizes.emplace_back("parallelism_config_cp_comm_strategy",
                         choice("How do they exchange sequences?", {"allgather", "alltoall"}));
  }

  void ask_for_megatron() {
    if (!ask_.yes("Should Megatron-LM's settings say how models are split? Programs of Python follow them", false))
      return;
    type_ = "MEGATRON_LM";
    Members& settings = section("megatron_lm_config");
    const int64_t tensor = ask_.integer("Over how many ranks are layers split (tensor parallelism)", 1);
    settings.emplace_back("megatron_lm_tp_degree", Json::number(tensor));
    if (tensor > 1)
      settings.emplace_back("megatron_lm_sequence_parallelism", flag("Should sequences be split with them?", true));
    const int64_t pipeline = ask_.integer("How many stages has the pipeline", 1);
    settings.emplace_back("megatron_lm_pp_degree", Json::number(pipeline));
    if (pipeline > 1)
      settings.emplace_back("megatron_lm_num_micro_batches", count("Into how many parts are batches cut for it"));
    settings.emplace_back("megatron_lm_recompute_activations",
                          flag("Should some activations be computed again in backward?", true));
    settings.emplace_back("megatron_lm_use_distributed_optimizer", flag("Should optimizers be sharded?", true));
    settings.emplace_back("megatron_lm_gradient_clipping",
                          Json::number(ask_.number("To which norm are gradients clipped, 0 for no", 1.0)));
  }

  void ask_for_processes() {
    int64_t processes = 1;
    if (type_ != "NO") {
      const char* const units = has_accelerators() || is_of_processors() ? kind_->units : "GPUs";
      const bool is_alone = type_ == "MULTI_GPU" && num_machines_ == 1;  // one would not be several
      const int64_t usual =
          is_of_processors() ? 1 : static_cast<int64_t>(std::max<size_t>(num_gpus_, is_alone ? 2 : 1));
      processes =
          ask_.integer(accel::text("How many ", units, " are used, on all machines together"), usual, is_alone ? 2 : 1);
    }
    set("num_processes", Json::number(processes));
  }

  void ask_for_gpus() {
    const bool is_plain = has_accelerators() || type_ == "NO";  // nothing chosen that shards
    if (is_plain && !uses_cpu_) set("gpu_ids", answer("Which GPUs of this machine, as ids separated by commas", "all"));
    set("enable_cpu_affinity", Json((type_ == "NO" || type_ == "MULTI_GPU") && !uses_cpu_ &&
                                    yes("Should processes stay near their GPUs (NUMA)?")));
  }

  void ask_for_precision() {
    if (has_deepspeed_file_) return;  // that file says it
    const std::string precision = ask_.choice("Which mixed precision?", {"no", "fp16", "bf16", "fp8"});
    set("mixed_precision", Json(precision));
    if (precision == "fp8") ask_for_fp8();
  }

  void ask_for_fp8() {
    Members& settings = section("fp8_config");
    const std::string backend = ask_.choice("Whose recipe of fp8?", {"ao", "te", "msamp"});
    settings.emplace_back("backend", Json(upper(backend)));
    if (backend == "te") {
      settings.emplace_back("use_autocast_during_eval", flag("In evaluation as well?"));
      settings.emplace_back("margin", count("With which margin for scaling", 0, 0));
      settings.emplace_back("interval", count("After how many steps are scales computed"));
      settings.emplace_back("fp8_format", choice("Which format?", {"HYBRID", "E4M3", "E5M2"}));
      settings.emplace_back("amax_history_length", count("From how many steps", 1024));
      settings.emplace_back("amax_compute_algorithm", choice("By which of them?", {"max", "most_recent"}));
      const bool overrides = yes("Should some products be computed in higher precision?");
      Json::Items products;
      for (const char* const product :
           {"forward (fprop)?", "the inputs' gradients (dgrad)?", "the weights' gradients (wgrad)?"})
        products.emplace_back(overrides && ask_.yes(std::string("Those of ") + product, false));
      settings.emplace_back("override_linear_precision", Json(std::move(products)));
    } else if (backend == "msamp") {
      settings.emplace_back("optimization_level", choice("Which level?", {"O1", "O2"}, 1));
    } else {
      settings.emplace_back("enable_fsdp_float8_all_gather", flag("Should FSDP gather in fp8?", true));
      settings.emplace_back("pad_inner_dim", flag("Should matrices be padded to what the hardware needs?", true));
    }
  }

  const Questions& ask_;
  size_t num_gpus_;
  const MachineKind* kind_ = nullptr;
  std::string type_;
  int64_t num_machines_ = 1;
  bool uses_cpu_ = false, has_deepspeed_file_ = false;
  int fsdp_version_ = 1;
  Members members_;
  std::vector<std::pair<const char*, Members>> sections_;
};

}  // namespace

Json ask_for_cluster(const Questions& ask, size_t num_gpus) { return ClusterQuestionnaire(ask, num_gpus).run(); }

}  // namespace accel::program
