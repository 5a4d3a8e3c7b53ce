#include "launch/launch_plan.hpp"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "config/launch_configuration.hpp"
#include "config/option_text.hpp"
#include "config/yaml_document.hpp"
#include "launch/host_plan.hpp"
#include "launch/launch_option.hpp"
#include "launch/rank_environment.hpp"
#include "launch/visible_gpus.hpp"

namespace accel::launch {
namespace {

constexpr const char* kCommandLine = "command line";
constexpr const char* kDefault = "default";

// How the ranks compute together; one of them is turned on by an option, or by the file's distributed_type.
enum class Mode : uint8_t { kProcesses, kMultiGpu, kFsdp, kDeepspeed };

std::string shown_option(std::string_view name) {
  std::string shown = "--" + std::string(name);
  std::replace(shown.begin(), shown.end(), '_', '-');
  return shown;
}

// Values of the file as text; a list is joined by commas. Null: nothing.
std::optional<std::string> text_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.text() != nullptr) return *value.text();
  if (value.flag() != nullptr) return *value.flag() ? "true" : "false";
  if (value.digits() != nullptr) return *value.digits();
  if (value.items() == nullptr) return print_json(value);
  std::string joined;
  for (const Json& item : *value.items()) joined += (joined.empty() ? "" : ",") + text_of(item).value_or("");
  if (joined.empty()) return std::nullopt;
  return joined;
}

// The option that a name of the file sets: names of some sections may lack the prefix that options have.
const LaunchOption* option_of_file(std::string_view section, std::string_view name) {
  if (section.empty() && name == "use_cpu") return find_launch_option("cpu");
  if (name == "fsdp_backward_prefetch_policy" || name == "backward_prefetch_policy")
    return find_launch_option("fsdp_backward_prefetch");
  for (const std::string_view prefix : {"fsdp", "fp8", "dynamo"})
    if (section == std::string(prefix) + "_config" && name.compare(0, prefix.size(), prefix) != 0)
      return find_launch_option(std::string(prefix) + "_" + std::string(name));
  return find_launch_option(name);
}

class Planner {
 public:
  Planner(const GivenOptions& given, std::vector<std::string> program) : given_(given) {
    plan_.options.program = std::move(program);
  }

  LaunchPlan plan() {
    check_given();
    read_file();
    choose_mode();
    for (const LaunchOption& option : launch_options()) resolve(option);
    refuse_what_is_not_there();
    leave_hostfile_to_deepspeed();
    count_processes();
    choose_port();
    check_gpus();
    check_sharding();
    choose_program();
    choose_output();
    pass_variables();
    if (find("deepspeed_hostfile") == nullptr && find("nnodes") == nullptr) check_processes();
    choose_hosts();
    check_processes();
    pass_affinity_of_threads();
    note_what_has_no_effect();
    for (const LaunchOption& option : launch_options())
      if (const auto found = settings_.find(option.field.name); found != settings_.end())
        plan_.settings.emplace_back(found->first, found->second);
    return std::move(plan_);
  }

 private:
  bool is_given(const std::string& name) const { return given_.count(name) != 0; }
  bool is_given_yes(const std::string& name) const {
    const auto found = given_.find(name);
    return found != given_.end() && parse_flag(found->second).value_or(false);
  }

  const PlannedSetting* find(const std::string& name) const {
    const auto found = settings_.find(name);
    return found == settings_.end() ? nullptr : &found->second;
  }
  std::string value_of(const std::string& name, const std::string& otherwise = "") const {
    const PlannedSetting* const setting = find(name);
    return setting == nullptr ? otherwise : setting->value;
  }
  bool is_yes(const std::string& name) const { return parse_flag(value_of(name, "no")).value_or(false); }
  int integer_of(const std::string& name, int otherwise) const {
    const PlannedSetting* const setting = find(name);
    return setting == nullptr ? otherwise : static_cast<int>(parse_integer(setting->value).value());
  }
  // "--num-processes", or "job.yaml:3: num_processes"
  std::string place_of(const std::string& name) const {
    const PlannedSetting* const setting = find(name);
    if (setting == nullptr || setting->source == kCommandLine || setting->source == kDefault) return shown_option(name);
    const char* const variable = find_launch_option(name)->field.variable;
    return variable != nullptr && setting->source == variable ? setting->source : text(setting->source, ": ", name);
  }
  bool is_from_file(const PlannedSetting& setting) const {
    return file_ && setting.source.compare(0, file_->path.size() + 1, file_->path + ":") == 0;
  }

  void check_given() const {
    for (const auto& [name, value] : given_)
      check_option_text(find_launch_option(name)->field, value, shown_option(name), "");
    const char* const kModes[] = {"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp"};
    const char* first = nullptr;
    for (const char* const mode : kModes) {
      if (!is_given_yes(mode)) continue;
      require(first == nullptr, Status::kInvalidArgument, first == nullptr ? "" : shown_option(first), " and ",
              shown_option(mode),
              " are both given; expected one of --cpu, --multi-gpu, --tpu, --use-deepspeed and --use-fsdp");
      first = mode;
    }
    const auto processes = given_.find("num_processes");
    require(!is_given_yes("multi_gpu") || processes == given_.end() || processes->second != "1",
            Status::kInvalidArgument, "--multi-gpu is given and --num-processes is 1; expected at least 2");
    const auto version = given_.find("fsdp_version");
    require(!is_given_yes("use_parallelism_config") ||
                (is_given_yes("use_fsdp") && version != given_.end() && version->second == "2"),
            Status::kInvalidArgument,
            "--use-parallelism-config is given; expected --use-fsdp and --fsdp-version 2 beside it");
    require(!is_given_yes("module") || !is_given_yes("no_python"), Status::kInvalidArgument,
            "--module and --no-python are both given; expected one of them");
  }

  // The file of the command line, of the variable that the ranks read, too, or that of `accel config`.
  void read_file() {
    if (is_given("config_file")) {
      file_ = read_launch_configuration(given_.at("config_file"));
    } else if (const auto path = environment_text("ACCELERATE_CONFIG_FILE")) {
      // A file with settings of the ranks alone is for them to read.
      const YamlNode root = read_yaml(*path);
      if (root.is_map() && root.find("distributed_type") != nullptr) file_ = read_launch_configuration(*path);
    } else if (const std::string default_path = default_configuration_path();
               !is_given_yes("cpu") && access(default_path.c_str(), F_OK) == 0) {
      file_ = read_launch_configuration(default_path);
    }
    if (!file_) return;
    require(!file_->is_sagemaker, Status::kUnsupported, file_->path,
            ": compute_environment is 'AMAZON_SAGEMAKER', and nothing is started on SageMaker; expected LOCAL_MACHINE");
    for (const LaunchConfiguration::Value& value : file_->values) add_of_file("", value);
    for (const LaunchConfiguration::Section& section : file_->sections)
      for (const LaunchConfiguration::Value& value : section.values) add_of_file(section.name, value);
  }

  void add_of_file(std::string_view section, const LaunchConfiguration::Value& value) {
    const LaunchOption* const option = option_of_file(section, value.name);
    const std::optional<std::string> written = text_of(value.value);
    if (option == nullptr || !written || (value.is_default() && value.name != "num_processes")) return;
    of_file_[option->field.name] = {*written, value.is_default() ? kDefault : value.place};
  }

  void choose_mode() {
    const bool is_chosen = is_given_yes("multi_gpu") || is_given_yes("tpu") || is_given_yes("tpu_cluster") ||
                           is_given_yes("use_deepspeed") || is_given_yes("use_fsdp") || is_given_yes("use_megatron_lm");
    if (file_ && !is_chosen) follow_type_of_file();
    if (is_given_yes("cpu")) {
      for (const char* const mode : {"use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu", "use_parallelism_config"})
        of_file_.erase(mode);
      if (mode_ != Mode::kProcesses)
        plan_.notes.push_back(
            text("--cpu is given: distributed_type of ", file_->find("", "distributed_type")->place, " has no effect"));
      mode_ = Mode::kProcesses;
    } else if (is_given_yes("use_deepspeed")) {
      mode_ = Mode::kDeepspeed;
    } else if (is_given_yes("use_fsdp")) {
      mode_ = Mode::kFsdp;
    } else if (is_given_yes("multi_gpu")) {
      mode_ = Mode::kMultiGpu;
    }
  }

  void follow_type_of_file() {
    const LaunchConfiguration::Value& type = *file_->find("", "distributed_type");
    const std::string& name = *type.value.text();
    const auto turn_on = [&](const char* option) { of_file_[option] = {"true", type.place}; };
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
    for (const LaunchConfiguration::Section& section : file_->sections)
      if (section.name == "parallelism_config" && !section.values.empty()) turn_on("use_parallelism_config");
  }

  // Command line > environment > configuration file > default.
  void resolve(const LaunchOption& option) {
    const std::string name = option.field.name;
    if (const auto found = given_.find(name); found != given_.end()) {
      settings_[name] = {found->second, kCommandLine};
      return;
    }
    // Where the ranks meet is not what an older job left in the environment.
    const bool has_variable = option.field.variable != nullptr && option.group != &groups::hosts;
    if (const auto value = has_variable ? environment_text(option.field.variable) : std::nullopt) {
      settings_[name] = {*value, option.field.variable};
      return;
    }
    if (const auto found = of_file_.find(name); found != of_file_.end()) {
      const PlannedSetting& setting = found->second;
      if (setting.value != "-1")  // "to be given on the command line", see count_processes()
        check_option_text(option.field, setting.value, name, setting.source);
      settings_[name] = setting;
      return;
    }
    if (option.parser_default == nullptr || option.group->reason != nullptr) return;
    const Json value = parse_json(option.parser_default, name);
    if (const auto written = text_of(value); written && !written->empty()) settings_[name] = {*written, kDefault};
  }

  void refuse_what_is_not_there() const {
    for (const LaunchOption& option : launch_options()) {
      const PlannedSetting* const setting = find(option.field.name);
      if (setting == nullptr || setting->source == kDefault) continue;
      const char* const asked = refused_meaning(
          option, option.is_flag() && parse_flag(setting->value).value_or(false) ? "true" : setting->value);
      require(asked == nullptr, Status::kUnsupported, place_of(option.field.name), " is '", setting->value,
              "', which asks for ", asked == nullptr ? "" : asked, "; this version has nothing of the kind");
    }
  }

  // In a file it is a setting of DeepSpeed; on the command line it is one of the job.
  void leave_hostfile_to_deepspeed() {
    if (!is_given("deepspeed_hostfile") && mode_ != Mode::kDeepspeed) settings_.erase("deepspeed_hostfile");
    for (const char* const filter : {"deepspeed_exclusion_filter", "deepspeed_inclusion_filter"})
      require(find("deepspeed_hostfile") == nullptr || find(filter) == nullptr, Status::kUnsupported, place_of(filter),
              " is '", value_of(filter), "'; expected a hostfile that has the hosts to use and no others");
  }

  void count_processes() {
    LaunchOptions& options = plan_.options;
    options.num_machines = integer_of("num_machines", 1);
    options.machine_rank = integer_of("machine_rank", 0);
    if (const PlannedSetting* const setting = find("num_processes")) {
      require(setting->value != "-1", Status::kInvalidArgument, file_ ? file_->path : "", ": num_processes is -1",
              setting->source == kDefault ? ", as it is not there" : "", "; expected --num-processes N");
      options.num_processes = integer_of("num_processes", 1);
    } else if (find("deepspeed_hostfile") == nullptr) {  // else as many as its hosts have
      const std::vector<std::string> gpus = is_yes("cpu") ? std::vector<std::string>() : visible_gpus(gpu_ids());
      options.num_processes = std::max<int>(1, static_cast<int>(gpus.size())) * options.num_machines;
      settings_["num_processes"] = {std::to_string(options.num_processes), kDefault};
      if (gpus.size() > 1)
        plan_.notes.push_back(text(options.num_processes,
                                   " processes are started, one for each GPU; --num-processes gives another number"));
    }
    if (find("num_cpu_threads_per_process") != nullptr && environment_text("OMP_NUM_THREADS").has_value() &&
        !is_given("num_cpu_threads_per_process"))
      settings_["num_cpu_threads_per_process"] = {*environment_text("OMP_NUM_THREADS"), "OMP_NUM_THREADS"};
    else if (find("num_cpu_threads_per_process") != nullptr)
      options.num_cpu_threads_per_process = integer_of("num_cpu_threads_per_process", 1);
  }

  void check_processes() {
    const LaunchOptions& options = plan_.options;
    require(options.hosts.slots > 0 || options.num_processes % options.num_machines == 0, Status::kInvalidArgument,
            place_of("num_processes"), " is ", options.num_processes,
            "; expected a multiple of --num-machines, which is ", options.num_machines);
    require(options.machine_rank < options.num_machines, Status::kInvalidArgument, place_of("machine_rank"), " is ",
            options.machine_rank, "; expected less than --num-machines, which is ", options.num_machines);
    if (options.hosts.max_hosts > 1) plan_.launcher = options.hosts.listed.empty() ? "hosts" : "ssh";
  }

  std::string gpu_ids() const {
    const std::string ids = value_of("gpu_ids", "all");
    return ids == "all" ? visible_gpu_ids() : ids;
  }

  void choose_port() {
    LaunchOptions& options = plan_.options;
    if (find("main_process_port") != nullptr) options.main_process_port = integer_of("main_process_port", 0);
    if (options.main_process_port == 0) options.main_process_port.reset();
    if (options.num_machines == 1 && find("deepspeed_hostfile") == nullptr && find("nnodes") == nullptr &&
        options.main_process_port && !is_port_free(*options.main_process_port)) {
      plan_.notes.push_back(text(place_of("main_process_port"), " is ", *options.main_process_port,
                                 ", which another program has; the ranks meet at a free port"));
      options.main_process_port.reset();
    }
  }

  void check_gpus() const {
    const std::string ids = value_of("gpu_ids", "all");
    require(mode_ != Mode::kMultiGpu || plan_.options.num_machines > 1 || ids == "all" ||
                ids.find(',') != std::string::npos,
            Status::kInvalidArgument, place_of("gpu_ids"), " is '", ids,
            "' and there are to be several GPUs; expected at least two, or all");
  }

  void check_sharding() const {
    if (mode_ != Mode::kFsdp) return;
    require(!is_yes("fsdp_cpu_ram_efficient_loading") || is_yes("fsdp_sync_module_states"), Status::kInvalidArgument,
            place_of("fsdp_sync_module_states"), " is no and ", place_of("fsdp_cpu_ram_efficient_loading"),
            " is yes: only rank 0 would have weights; expected both, or none");
  }

  // As Accelerate starts it: scripts and modules of Python by python3.
  void choose_program() {
    std::vector<std::string>& program = plan_.options.program;
    plan_.options.is_module = is_yes("module");
    plan_.options.is_program_itself = is_yes("no_python");
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
    options.log_dir = value_of("log_dir");
    options.tee = value_of("tee", "0");
    options.redirects = value_of("redirects", "0");
    options.prefix = is_yes("prefix");
    const std::string level = value_of("log_level", "info");
    options.quiet = is_yes("quiet") || level == "error" || level == "critical";
  }

  void choose_hosts() {
    LaunchOptions& options = plan_.options;
    options.max_restarts = integer_of("max_restarts", 0);
    options.rdzv_backend = value_of("rdzv_backend", "static");
    options.rdzv_conf = value_of("rdzv_conf");
    options.role = value_of("role", "default");
    options.hostfile = value_of("deepspeed_hostfile");
    options.mpirun_hostfile = value_of("mpirun_hostfile");
    options.nnodes = value_of("nnodes");
    options.rdzv_endpoint = value_of("rdzv_endpoint");
    options.rdzv_timeout = value_of("rdzv_timeout");
    options.secret_file = value_of("secret_file");
    options.interface_name = value_of("interface");
    options.ssh_command = value_of("ssh_command", options.ssh_command);
    options.ssh_options = value_of("ssh_options", options.ssh_options);
    if (find("environment") != nullptr) options.environment = value_of("environment");
    plan_hosts(options);
  }

  bool is_active(const OptionGroup& group) const {
    if (&group == &groups::fsdp) return mode_ == Mode::kFsdp;
    if (&group == &groups::deepspeed) return mode_ == Mode::kDeepspeed;
    if (&group == &groups::parallelism) return is_yes("use_parallelism_config");
    if (&group == &groups::compilation) return file_.has_value() && mode_ != Mode::kDeepspeed;
    return true;
  }

  // Of values that nobody gave on the command line: whether the ranks get them.
  bool is_passed(const LaunchOption& option, const PlannedSetting& setting) const {
    const std::string_view name = option.field.name;
    if (!is_active(*option.group)) return false;
    if (option.group == &groups::compilation) return true;
    if (name == "gradient_accumulation_steps") return mode_ == Mode::kDeepspeed;
    if (name == "cpu") return mode_ == Mode::kProcesses && file_;
    if (name == "parallelism_config_cp_comm_strategy") return integer_of("parallelism_config_cp_size", 1) > 1;
    constexpr std::string_view kOfSequences[] = {"parallelism_config_sp_seq_length",
                                                 "parallelism_config_sp_seq_length_is_variable",
                                                 "parallelism_config_sp_attn_implementation"};
    if (std::find(std::begin(kOfSequences), std::end(kOfSequences), name) != std::end(kOfSequences)) return false;
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
    if (name == "dynamo_backend") convert(std::toupper);
    if (name == "mixed_precision" || name == "fsdp_reshard_after_forward" || name == "offload_optimizer_device" ||
        name == "offload_param_device")
      convert(std::tolower);
    return result;
  }

  void pass(const std::string& name, const std::string& value) {
    if (!environment_text(name.c_str())) plan_.options.variables.emplace_back(name, value);
  }

  void pass_variables() {
    if (file_) {
      settings_.try_emplace("mixed_precision", PlannedSetting{"no", kDefault});
      for (const auto& [name, value] : {std::pair("dynamo_backend", "no"), std::pair("dynamo_mode", "default"),
                                        std::pair("dynamo_use_fullgraph", "no"), std::pair("dynamo_use_dynamic", "no"),
                                        std::pair("dynamo_use_regional_compilation", "no")})
        settings_.try_emplace(name, PlannedSetting{value, kDefault});
      if (mode_ == Mode::kProcesses) settings_.try_emplace("cpu", PlannedSetting{"no", kDefault});
    }
    for (const LaunchOption& option : launch_options()) {
      const PlannedSetting* const setting = find(option.field.name);
      if (option.field.variable == nullptr || setting == nullptr || setting->source == option.field.variable) continue;
      const bool is_place = std::string_view(option.field.name) == "main_process_port";
      if (is_place) continue;
      if (setting->source == kCommandLine || is_passed(option, *setting))
        plan_.options.variables.emplace_back(option.field.variable, printed(option, setting->value));
    }
    if (const std::string ids = value_of("gpu_ids", "all"); ids != "all")
      plan_.options.variables.emplace_back(kVisibleGpus, ids);
    if (mode_ == Mode::kDeepspeed) pass_what_deepspeed_asks_for();
    if (file_ && !file_->own.empty()) pass("ACCELERATE_CONFIG_FILE", std::filesystem::absolute(file_->path).string());
  }

  void pass_affinity_of_threads() {
    // Of Intel's OpenMP. Threads of several ranks that are not bound would all be put onto the first processors.
    if (mode_ == Mode::kProcesses && is_yes("cpu") && plan_.options.local_processes() == 1) {
      pass("KMP_AFFINITY", "granularity=fine,compact,1,0");
      pass("KMP_BLOCKTIME", "1");
    }
  }

  void pass_what_deepspeed_asks_for() {
    std::string fields;
    if (file_)
      for (const LaunchConfiguration::Section& section : file_->sections)
        if (section.name == "deepspeed_config")
          for (const LaunchConfiguration::Value& value : section.values) fields += value.name + ",";
    if (const PlannedSetting* const precision = find("mixed_precision");
        precision != nullptr && is_from_file(*precision))
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
    for (const auto& [name, value] : given_) {
      const LaunchOption& option = *find_launch_option(name);
      const OptionGroup& group = *option.group;
      if (group.reason != nullptr) {
        if (!option.is_flag() || parse_flag(value).value_or(false))
          plan_.notes.push_back(text(shown_option(name), " has no effect: ", group.reason));
      } else if ((&group == &groups::fsdp || &group == &groups::deepspeed) && !is_active(group) &&
                 !environment_flag(find_launch_option(group.switch_name)->field.variable).value_or(false) &&
                 name != group.switch_name) {
        plan_.notes.push_back(text(shown_option(name), " has no effect without ", shown_option(group.switch_name)));
      }
    }
  }

  const GivenOptions& given_;
  std::optional<LaunchConfiguration> file_;
  std::map<std::string, PlannedSetting> of_file_;
  std::map<std::string, PlannedSetting> settings_;
  Mode mode_ = Mode::kProcesses;
  LaunchPlan plan_;
};

}  // namespace

LaunchPlan plan_launch(const GivenOptions& given, std::vector<std::string> program) {
  return Planner(given, std::move(program)).plan();
}

}  // namespace accel::launch
