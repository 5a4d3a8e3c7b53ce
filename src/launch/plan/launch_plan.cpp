// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/launch_plan.hpp"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "config/option_text.hpp"
#include "launch/hosts/host_plan.hpp"
#include "launch/plan/launch_option_list.hpp"
#include "launch/plan/launch_settings.hpp"
#include "launch/ranks/claimed_port.hpp"
#include "machine/visible_gpus.hpp"

namespace accel::launch {
namespace {

// How the ranks compute together; one of them is turned on by an option, or by the file's distributed_type.
enum class Mode : uint8_t { kProcesses, kMultiGpu, kFsdp, kDeepspeed };

class Planner {
 public:
  Planner(const GivenOptions& given, std::vector<std::string> program) : settings_(given) {
    plan_.options.program = std::move(program);
  }

  LaunchPlan plan() {
    resolve_all();
    refuse_what_is_not_there();
    leave_hostfile_to_deepspeed();
    count_processes();
    choose_port();
    check_gpus();
    check_sharding();
    choose_program();
    choose_output();
    pass_variables();
    if (settings_.find("deepspeed_hostfile") == nullptr && settings_.find("nnodes") == nullptr) check_processes();
    choose_hosts();
    check_processes();
    pass_affinity_of_threads();
    note_what_has_no_effect();
    for (const LaunchOption& option : launch_options())
      if (const PlannedSetting* const setting = settings_.find(option.field.name))
        plan_.settings.emplace_back(option.field.name, *setting);
    return std::move(plan_);
  }

  ExplainedSettings explain() {
    resolve_all();
    ExplainedSettings result;
    if (settings_.file()) result.file = settings_.file()->path;
    for (const LaunchOption& option : launch_options()) {
      const PlannedSetting* const found = settings_.find(option.field.name);
      const bool is_used = option.group->reason == nullptr && is_active(*option.group);
      if (found == nullptr || (found->source == kDefault && !is_used)) continue;
      result.settings.push_back({option.field.name, *found, settings_.overruled(option)});
    }
    for (auto& [name, setting] : settings_.of_library()) result.settings.push_back({name, std::move(setting), {}});
    return result;
  }

 private:
  void resolve_all() {
    check_given();
    settings_.read_file();
    settings_.follow_cluster();
    choose_mode();
    settings_.resolve();
  }

  void check_given() const {
    for (const auto& [name, value] : settings_.given())
      check_option_text(find_launch_option(name)->field, value, option_flag(name), "");
    constexpr const char* kModes[] = {"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp"};
    const char* first = nullptr;
    for (const char* const mode : kModes) {
      if (!settings_.is_given_yes(mode)) continue;
      require(first == nullptr, Status::kInvalidArgument, first == nullptr ? "" : option_flag(first), " and ",
              option_flag(mode),
              " are both given; expected one of --cpu, --multi-gpu, --tpu, --use-deepspeed and --use-fsdp");
      first = mode;
    }
    const GivenOptions& given = settings_.given();
    const auto processes = given.find("num_processes");
    require(!settings_.is_given_yes("multi_gpu") || processes == given.end() || processes->second != "1",
            Status::kInvalidArgument, "--multi-gpu is given and --num-processes is 1; expected at least 2");
    require(!settings_.is_given_yes("module") || !settings_.is_given_yes("no_python"), Status::kInvalidArgument,
            "--module and --no-python are both given; expected one of them");
  }

  void choose_mode() {
    const bool is_chosen = settings_.is_given_yes("multi_gpu") || settings_.is_given_yes("tpu") ||
                           settings_.is_given_yes("tpu_cluster") || settings_.is_given_yes("use_deepspeed") ||
                           settings_.is_given_yes("use_fsdp") || settings_.is_given_yes("use_megatron_lm");
    if (settings_.file() && !is_chosen) follow_type_of_file();
    if (settings_.is_given_yes("cpu")) {
      for (const char* const mode : {"use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu", "use_parallelism_config"})
        settings_.forget_of_file(mode);
      if (mode_ != Mode::kProcesses)
        plan_.notes.push_back(text("--cpu is given: distributed_type of ",
                                   settings_.file()->find("", "distributed_type")->place, " has no effect"));
      mode_ = Mode::kProcesses;
    } else if (settings_.is_given_yes("use_deepspeed")) {
      mode_ = Mode::kDeepspeed;
    } else if (settings_.is_given_yes("use_fsdp")) {
      mode_ = Mode::kFsdp;
    } else if (settings_.is_given_yes("multi_gpu")) {
      mode_ = Mode::kMultiGpu;
    }
  }

  void follow_type_of_file() {
    const LaunchConfiguration::Value& type = *settings_.file()->find("", "distributed_type");
    const std::string& name = *type.value.text();
    const auto turn_on = [&](const char* option) { settings_.set_of_file(option, {"true", type.place}); };
    if (name == "DEEPSPEED") {
      mode_ = Mode::kDeepspeed;
      turn_on("use_deepspeed");
    } else if (name == "FSDP") {
      mode_ = Mode::kFsdp;
      turn_on("use_fsdp");
    } else if (name == "MEGATRON_LM") {
      turn_on("use_megatron_lm");
    } else if (name == "XLA" || name == "TPU") {
      turn_on("tpu");
    } else if (name.compare(0, 6, "MULTI_") == 0 && name != "MULTI_CPU") {
      mode_ = Mode::kMultiGpu;
    }
    for (const LaunchConfiguration::Section& section : settings_.file()->sections)
      if (section.name == "parallelism_config" && !section.values.empty()) turn_on("use_parallelism_config");
  }

  void refuse_what_is_not_there() const {
    for (const LaunchOption& option : launch_options()) {
      const PlannedSetting* const setting = settings_.find(option.field.name);
      if (setting == nullptr || setting->source == kDefault) continue;
      const char* const asked = refused_meaning(
          option, option.is_flag() && parse_flag(setting->value).value_or(false) ? "true" : setting->value);
      require(asked == nullptr, Status::kUnsupported, settings_.place_of(option.field.name), " is '", setting->value,
              "', which asks for ", asked == nullptr ? "" : asked, "; this version does not support it");
    }
  }

  // In a file it is a setting of DeepSpeed; on the command line it is one of the job.
  void leave_hostfile_to_deepspeed() {
    if (!settings_.is_given("deepspeed_hostfile") && mode_ != Mode::kDeepspeed) settings_.forget("deepspeed_hostfile");
    for (const char* const filter : {"deepspeed_exclusion_filter", "deepspeed_inclusion_filter"})
      require(settings_.find("deepspeed_hostfile") == nullptr || settings_.find(filter) == nullptr,
              Status::kUnsupported, settings_.place_of(filter), " is '", settings_.value_of(filter),
              "'; expected a hostfile that has the hosts to use and no others");
  }

  void count_processes() {
    LaunchOptions& options = plan_.options;
    options.num_machines = settings_.integer_of("num_machines", 1);
    options.machine_rank = settings_.integer_of("machine_rank", 0);
    if (const PlannedSetting* const setting = settings_.find("num_processes")) {
      require(setting->value != "-1", Status::kInvalidArgument, settings_.file() ? settings_.file()->path : "",
              ": num_processes is -1", setting->source == kDefault ? ", as it is not there" : "",
              "; expected --num-processes N");
      options.num_processes = settings_.integer_of("num_processes", 1);
    } else if (settings_.find("deepspeed_hostfile") == nullptr) {  // else as many as its hosts have
      const std::vector<std::string> gpus =
          settings_.is_yes("cpu") ? std::vector<std::string>() : visible_gpus(gpu_ids());
      options.num_processes = std::max<int>(1, static_cast<int>(gpus.size())) * options.num_machines;
      settings_.set("num_processes", {std::to_string(options.num_processes), kDefault});
      if (gpus.size() > 1)
        plan_.notes.push_back(text(options.num_processes,
                                   " processes are started, one for each GPU; --num-processes gives another number"));
    }
    if (settings_.find("num_cpu_threads_per_process") != nullptr && environment_text("OMP_NUM_THREADS").has_value() &&
        !settings_.is_given("num_cpu_threads_per_process"))
      settings_.set("num_cpu_threads_per_process", {*environment_text("OMP_NUM_THREADS"), "OMP_NUM_THREADS"});
    else if (settings_.find("num_cpu_threads_per_process") != nullptr)
      options.num_cpu_threads_per_process = settings_.integer_of("num_cpu_threads_per_process", 1);
  }

  void check_processes() {
    const LaunchOptions& options = plan_.options;
    require(options.hosts.slots > 0 || options.num_processes % options.num_machines == 0, Status::kInvalidArgument,
            settings_.place_of("num_processes"), " is ", options.num_processes,
            "; expected a multiple of --num-machines, which is ", options.num_machines);
    require(options.machine_rank < options.num_machines, Status::kInvalidArgument, settings_.place_of("machine_rank"),
            " is ", options.machine_rank, "; expected less than --num-machines, which is ", options.num_machines);
    if (options.hosts.max_hosts > 1) plan_.launcher = options.hosts.listed.empty() ? "hosts" : "ssh";
    if (!options.mpirun_hostfile.empty()) plan_.launcher = "mpirun";
  }

  std::string gpu_ids() const {
    const std::string ids = settings_.value_of("gpu_ids", "all");
    return ids == "all" ? visible_gpu_ids() : ids;
  }

  void choose_port() {
    LaunchOptions& options = plan_.options;
    if (settings_.find("main_process_port") != nullptr)
      options.main_process_port = settings_.integer_of("main_process_port", 0);
    if (options.main_process_port == 0) options.main_process_port.reset();
    if (options.num_machines == 1 && settings_.find("deepspeed_hostfile") == nullptr &&
        settings_.find("nnodes") == nullptr && options.main_process_port && !is_port_free(*options.main_process_port)) {
      plan_.notes.push_back(text(settings_.place_of("main_process_port"), " is ", *options.main_process_port,
                                 ", which another program has; the ranks meet at a free port"));
      options.main_process_port.reset();
    }
  }

  void check_gpus() const {
    const std::string ids = settings_.value_of("gpu_ids", "all");
    require(mode_ != Mode::kMultiGpu || plan_.options.num_machines > 1 || ids == "all" ||
                ids.find(',') != std::string::npos,
            Status::kInvalidArgument, settings_.place_of("gpu_ids"), " is '", ids,
            "' and there are to be several GPUs; expected at least two, or all");
  }

  void check_sharding() const {
    if (mode_ != Mode::kFsdp) return;
    require(!settings_.is_yes("fsdp_cpu_ram_efficient_loading") || settings_.is_yes("fsdp_sync_module_states"),
            Status::kInvalidArgument, settings_.place_of("fsdp_sync_module_states"), " is no and ",
            settings_.place_of("fsdp_cpu_ram_efficient_loading"),
            " is yes: only rank 0 would have weights; expected both, or none");
  }

  // Scripts and modules of Python are started by python3, as Accelerate does.
  void choose_program() {
    std::vector<std::string>& program = plan_.options.program;
    plan_.options.is_module = settings_.is_yes("module");
    plan_.options.is_program_itself = settings_.is_yes("no_python");
    if (program.empty()) return;
    constexpr std::string_view kScript = ".py";
    const std::string& name = program.front();
    const bool is_script =
        name.size() > kScript.size() && name.compare(name.size() - kScript.size(), kScript.size(), kScript) == 0;
    if (plan_.options.is_module)
      program.insert(program.begin(), {"python3", "-m"});
    else if (is_script && !plan_.options.is_program_itself)
      program.insert(program.begin(), "python3");
  }

  void choose_output() {
    LaunchOptions& options = plan_.options;
    options.output.log_dir = settings_.value_of("log_dir");
    options.output.tee = settings_.value_of("tee", "0");
    options.output.redirects = settings_.value_of("redirects", "0");
    options.output.is_of_last_rank = settings_.is_yes("use_megatron_lm");  // which is the main process there
    const bool has_role = settings_.value_of("role", "default") != "default";
    if (settings_.is_yes("prefix"))
      options.output.line_prefix = has_role ? "[${role_name} ${rank}] " : "[rank ${rank}] ";
    const std::string level = settings_.value_of("log_level", "info");
    options.output.quiet = settings_.is_yes("quiet") || level == "error" || level == "critical";
  }

  void choose_hosts() {
    LaunchOptions& options = plan_.options;
    options.max_restarts = settings_.integer_of("max_restarts", 0);
    options.rdzv_backend = settings_.value_of("rdzv_backend", "static");
    options.rdzv_conf = settings_.value_of("rdzv_conf");
    options.role = settings_.value_of("role", "default");
    options.hostfile = settings_.value_of("deepspeed_hostfile");
    options.mpirun_hostfile = settings_.value_of("mpirun_hostfile");
    options.nnodes = settings_.value_of("nnodes");
    options.rdzv_endpoint = settings_.value_of("rdzv_endpoint");
    options.rdzv_timeout = settings_.value_of("rdzv_timeout");
    options.secret_file = settings_.value_of("secret_file");
    options.interface_name = settings_.value_of("interface");
    options.ssh_command = settings_.value_of("ssh_command", options.ssh_command);
    options.ssh_options = settings_.value_of("ssh_options", options.ssh_options);
    if (settings_.find("environment") != nullptr) options.environment = settings_.value_of("environment");
    plan_hosts(options);
  }

  bool is_active(const OptionGroup& group) const {
    if (&group == &groups::fsdp) return mode_ == Mode::kFsdp;
    if (&group == &groups::deepspeed) return mode_ == Mode::kDeepspeed;
    if (&group == &groups::megatron) return settings_.is_yes("use_megatron_lm");
    if (&group == &groups::fp8) return is_in_8_bits();
    if (&group == &groups::parallelism) return settings_.is_yes("use_parallelism_config");
    if (&group == &groups::compilation) return settings_.file().has_value() && mode_ != Mode::kDeepspeed;
    return true;
  }

  bool is_in_8_bits() const { return strcasecmp(settings_.value_of("mixed_precision").c_str(), "fp8") == 0; }

  // Whether the ranks get a value that was not given on the command line.
  bool is_passed(const LaunchOption& option, const PlannedSetting& setting) const {
    const std::string_view name = option.field.name;
    if (!is_active(*option.group)) return false;
    if (option.group == &groups::compilation) return true;
    // The other recipes have no such features.
    if (name == "fp8_enable_fsdp_float8_all_gather" || name == "fp8_pad_inner_dim")
      return setting.source != kDefault || strcasecmp(settings_.value_of("fp8_backend", "ao").c_str(), "ao") == 0;
    if (option.group == &groups::fp8) return true;
    if (name == "gradient_accumulation_steps") return mode_ == Mode::kDeepspeed;
    if (name == "cpu") return mode_ == Mode::kProcesses && settings_.file() && !settings_.is_yes("use_megatron_lm");
    if (name == "parallelism_config_cp_comm_strategy") return settings_.integer_of("parallelism_config_cp_size", 1) > 1;
    constexpr std::string_view kOfSequences[] = {"parallelism_config_sp_seq_length",
                                                 "parallelism_config_sp_seq_length_is_variable",
                                                 "parallelism_config_sp_attn_implementation"};
    if (std::find(std::begin(kOfSequences), std::end(kOfSequences), name) != std::end(kOfSequences))
      return settings_.integer_of("parallelism_config_sp_size", 1) > 1;
    if (option.group->switch_name[0] == '\0' && option.is_flag()) return parse_flag(setting.value).value_or(false);
    return true;
  }

  std::string printed(const LaunchOption& option, const std::string& value) const {
    if (option.is_flag()) return parse_flag(value).value_or(false) ? option.yes : option.no;
    const std::string_view name = option.field.name;
    std::string result = value;
    const auto convert = [&](int (*letter)(int)) {
      std::transform(result.begin(), result.end(), result.begin(),
                     [letter](unsigned char c) { return static_cast<char>(letter(c)); });
    };
    if (name == "dynamo_backend" || name == "fp8_backend") convert(std::toupper);
    if (name == "mixed_precision" || name == "fsdp_reshard_after_forward" || name == "offload_optimizer_device" ||
        name == "offload_param_device")
      convert(std::tolower);
    return result;
  }

  void pass(const std::string& name, const std::string& value) {
    if (!environment_text(name.c_str())) plan_.options.variables.emplace_back(name, value);
  }

  void pass_variables() {
    if (settings_.file()) {
      settings_.set_default("mixed_precision", "no");
      for (const auto& [name, value] : {std::pair("dynamo_backend", "no"), std::pair("dynamo_mode", "default"),
                                        std::pair("dynamo_use_fullgraph", "no"), std::pair("dynamo_use_dynamic", "no"),
                                        std::pair("dynamo_use_regional_compilation", "no")})
        settings_.set_default(name, value);
      if (mode_ == Mode::kProcesses) settings_.set_default("cpu", "no");
    }
    for (const LaunchOption& option : launch_options()) {
      const PlannedSetting* const setting = settings_.find(option.field.name);
      if (option.field.variable == nullptr || setting == nullptr || setting->source == option.field.variable) continue;
      const bool is_place = std::string_view(option.field.name) == "main_process_port";
      if (is_place) continue;
      if (setting->source == kCommandLine || settings_.is_of_cluster(option.field.name) || is_passed(option, *setting))
        plan_.options.variables.emplace_back(option.field.variable, printed(option, setting->value));
    }
    if (const std::string ids = settings_.value_of("gpu_ids", "all"); ids != "all")
      plan_.options.variables.emplace_back(kVisibleGpus, ids);
    if (mode_ == Mode::kDeepspeed) pass_what_deepspeed_asks_for();
    if (is_in_8_bits()) pass_products_in_bfloat16();
    if (settings_.file() && !settings_.file()->own.empty())
      pass("ACCELERATE_CONFIG_FILE", std::filesystem::absolute(settings_.file()->path).string());
  }

  void pass_products_in_bfloat16() {
    const std::vector<std::string> given = split_text(settings_.value_of("fp8_override_linear_precision", "no,no,no"));
    constexpr const char* kVariables[] = {"ACCELERATE_FP8_OVERRIDE_FPROP", "ACCELERATE_FP8_OVERRIDE_DGRAD",
                                          "ACCELERATE_FP8_OVERRIDE_WGRAD"};
    const bool is_whole = given.size() == std::size(kVariables) && std::all_of(given.begin(), given.end(), parse_flag);
    require(is_whole, Status::kInvalidArgument, settings_.place_of("fp8_override_linear_precision"), " is '",
            settings_.value_of("fp8_override_linear_precision"),
            "'; expected yes or no for the forward, the inputs' gradients and the weights', as yes,no,no");
    const bool is_of_command_line = settings_.is_given("fp8_override_linear_precision");
    for (size_t i = 0; i < std::size(kVariables); ++i)
      if (is_of_command_line || !environment_text(kVariables[i]))
        plan_.options.variables.emplace_back(kVariables[i], *parse_flag(given[i]) ? "True" : "False");
  }

  void pass_affinity_of_threads() {
    // These are variables of Intel's OpenMP. Threads of several ranks that are not bound would all be put onto the
    // first processors.
    if (mode_ == Mode::kProcesses && settings_.is_yes("cpu") && plan_.options.local_processes() == 1) {
      pass("KMP_AFFINITY", "granularity=fine,compact,1,0");
      pass("KMP_BLOCKTIME", "1");
    }
  }

  void pass_what_deepspeed_asks_for() {
    std::string fields;
    if (settings_.file())
      for (const LaunchConfiguration::Section& section : settings_.file()->sections)
        if (section.name == "deepspeed_config")
          for (const LaunchConfiguration::Value& value : section.values) fields += value.name + ",";
    if (const PlannedSetting* const precision = settings_.find("mixed_precision");
        precision != nullptr && settings_.is_from_file(*precision))
      fields += "mixed_precision,";
    if (!fields.empty()) {
      fields.pop_back();
      pass("ACCELERATE_CONFIG_DS_FIELDS", fields);
    }
    const std::string here = std::filesystem::current_path().string();
    const auto path = environment_text("PYTHONPATH");
    plan_.options.variables.emplace_back("PYTHONPATH", path ? *path + ":" + here : here);
  }

  void note_what_has_no_effect() {
    for (const auto& [name, value] : settings_.given()) {
      const LaunchOption& option = *find_launch_option(name);
      const OptionGroup& group = *option.group;
      if (group.reason != nullptr) {
        if (!option.is_flag() || parse_flag(value).value_or(false))
          plan_.notes.push_back(text(option_flag(name), " has no effect: ", group.reason));
      } else if (&group == &groups::fp8 && !is_in_8_bits()) {
        plan_.notes.push_back(text(option_flag(name), " has no effect without --mixed-precision fp8"));
      } else if ((&group == &groups::fsdp || &group == &groups::deepspeed || &group == &groups::megatron) &&
                 !is_active(group) &&
                 !environment_flag(find_launch_option(group.switch_name)->field.variable).value_or(false) &&
                 name != group.switch_name) {
        plan_.notes.push_back(text(option_flag(name), " has no effect without ", option_flag(group.switch_name)));
      }
    }
  }

  LaunchSettings settings_;
  Mode mode_ = Mode::kProcesses;
  LaunchPlan plan_;
};

}  // namespace

LaunchPlan plan_launch(const GivenOptions& given, std::vector<std::string> program) {
  return Planner(given, std::move(program)).plan();
}

ExplainedSettings explain_settings(const GivenOptions& given) { return Planner(given, {}).explain(); }

}  // namespace accel::launch
