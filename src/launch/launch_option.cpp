#include "launch/launch_option.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.hpp"
#include "config/generated/option_tables.hpp"
#include "config/option_text.hpp"
#include "launch/cluster_place.hpp"
#include "launch/host_plan.hpp"

namespace accel::launch {
namespace {

constexpr const char* kPlaces = "Processes";
constexpr const char* kHosts = "Hosts";
constexpr const char* kProgram = "Program";
constexpr const char* kSettings = "Settings of the ranks";

// Of the launcher alone, so no table of the library has it.
constexpr OptionField own_field(OptionKind kind, const char* name, std::string_view meaning, OptionInterval interval,
                                const char* variable, const char* default_value, const char* default_words = nullptr) {
  return {name,          meaning.data(), kind,    0, 0,    static_cast<uint16_t>(meaning.size()), interval, variable,
          default_value, default_words,  nullptr, 0, false};
}

void set_variable(const OptionField& field, const std::string& value, LaunchOptions& options) {
  options.variables.emplace_back(field.variable, value);
}

template <std::string LaunchOptions::*kMember>
constexpr LaunchOption text_option(const char* name, std::string_view meaning, const char* other_name = nullptr) {
  return {own_field(OptionKind::kText, name, meaning, {}, nullptr, nullptr, "none"), kHosts,
          [](const OptionField&, const std::string& value, LaunchOptions& options) { options.*kMember = value; },
          other_name};
}

constexpr OptionInterval kFromZero{0, 65536, false, false}, kFromOne{1, 65536, false, false};

constexpr LaunchOption kOwnOptions[] = {
    {own_field(OptionKind::kInteger, "num_processes", "How many start, on all machines together.", kFromOne, nullptr,
               "1"),
     kPlaces,
     [](const OptionField&, const std::string& value, LaunchOptions& options) {
       options.num_processes = std::stoi(value);
     }},
    {own_field(OptionKind::kInteger, "num_machines", "How many run this same command.", kFromOne, nullptr, "1"),
     kPlaces,
     [](const OptionField&, const std::string& value, LaunchOptions& options) {
       options.num_machines = std::stoi(value);
     }},
    {own_field(OptionKind::kInteger, "machine_rank", "Which of the machines this is.", kFromZero, nullptr, "0"),
     kPlaces,
     [](const OptionField&, const std::string& value, LaunchOptions& options) {
       options.machine_rank = std::stoi(value);
     }},
    {own_field(OptionKind::kInteger, "max_restarts", "How often the ranks are started again when one fails.", kFromZero,
               nullptr, "0"),
     kHosts,
     [](const OptionField&, const std::string& value, LaunchOptions& options) {
       options.max_restarts = std::stoi(value);
     }},
    text_option<&LaunchOptions::nnodes>("nnodes", "How many hosts run this, or MIN:MAX if that may change."),
    text_option<&LaunchOptions::rdzv_backend>("rdzv_backend", "static: hosts have numbers; c10d: they get them."),
    text_option<&LaunchOptions::rdzv_endpoint>("rdzv_endpoint", "HOST:PORT of the coordinator, else of rank 0's host."),
    text_option<&LaunchOptions::rdzv_conf>("rdzv_conf", "NAME=VALUE with commas between them."),
    text_option<&LaunchOptions::rdzv_timeout>("rdzv_timeout", "Seconds for all hosts to join. Default 600."),
    text_option<&LaunchOptions::secret_file>("secret_file", "What launchers must know, in a file of mode 0600."),
    text_option<&LaunchOptions::interface_name>("interface", "The network interface of the job, or its address."),
    text_option<&LaunchOptions::hostfile>("hostfile", "Lines HOST [slots=N]: the others are reached by ssh.",
                                          "deepspeed_hostfile"),
    text_option<&LaunchOptions::ssh_command>("ssh_command", "What reaches them. Default ssh."),
    text_option<&LaunchOptions::ssh_options>("ssh_options", "Its options, as words of a shell."),
    text_option<&LaunchOptions::mpirun_hostfile>("mpirun_hostfile", "A hostfile: mpirun starts the ranks."),
    {own_field(OptionKind::kText, "environment", "Variables of the launcher that ranks get: names, NAME*, or none.", {},
               nullptr, nullptr, "all"),
     kHosts, [](const OptionField&, const std::string& value, LaunchOptions& options) { options.environment = value; }},
    {own_field(OptionKind::kInteger, "num_cpu_threads_per_process", "Threads that compute on the CPU.", kFromOne,
               "OMP_NUM_THREADS", nullptr, "as the variable says, else processors / processes"),
     kPlaces,
     [](const OptionField&, const std::string& value, LaunchOptions& options) {
       options.num_cpu_threads_per_process = std::stoi(value);
     }},
    {own_field(OptionKind::kFlag, "multi_gpu",
               "Of Accelerate's command lines: ranks take the GPUs that there are anyway.", {}, nullptr, "no"),
     kPlaces, [](const OptionField&, const std::string&, LaunchOptions&) {}},
    {own_field(OptionKind::kFlag, "module", "PROGRAM is a module, which python3 -m runs.", {}, nullptr, "no"), kProgram,
     [](const OptionField& field, const std::string& value, LaunchOptions& options) {
       options.is_module = parse_integer_option(field, value) == 1;
     },
     "m"},
    {own_field(OptionKind::kFlag, "no_python", "A PROGRAM whose name ends with .py is executed itself, not by python3.",
               {}, nullptr, "no"),
     kProgram,
     [](const OptionField& field, const std::string& value, LaunchOptions& options) {
       options.is_program_itself = parse_integer_option(field, value) == 1;
     }},
};

LaunchOption option_of(const OptionField& field) {
  const std::string_view name = field.name;
  if (name == "main_process_ip") return {field, kPlaces, set_variable};
  if (name == "cpu_affinity") return {field, kPlaces, set_variable, "enable_cpu_affinity"};
  if (name != "main_process_port") return {field, kSettings, set_variable};
  OptionField port = field;
  port.default_value = nullptr;
  port.default_words = "a free one, with several machines 29500";
  return {port, kPlaces, [](const OptionField&, const std::string& value, LaunchOptions& options) {
            options.main_process_port = std::stoi(value);
          }};
}

}  // namespace

std::vector<LaunchOption> launch_options() {
  std::vector<LaunchOption> found(std::begin(kOwnOptions), std::end(kOwnOptions));
  for (const OptionField& field : option_tables::state_options)
    if (field.variable != nullptr) found.push_back(option_of(field));
  return found;
}

// What a batch system says where the command line leaves it open.
void follow_cluster(LaunchOptions& options) {
  const auto is_given = [&options](std::string_view name) {
    return std::find(options.given_names.begin(), options.given_names.end(), name) != options.given_names.end();
  };
  const bool asks_for_hosts = options.num_machines > 1 || !options.nnodes.empty();
  const std::optional<ClusterPlace> place =
      is_given("machine_rank") || !options.hostfile.empty() || !options.mpirun_hostfile.empty()
          ? std::nullopt
          : find_cluster_place(asks_for_hosts);
  if (!place) return;
  for (const LaunchOption& option : launch_options())
    for (const auto& [name, value] : place->settings)
      if (option.field.name == std::string_view(name) && !is_given(name)) option.apply(option.field, value, options);
}

void check_together(LaunchOptions& options) {
  follow_cluster(options);
  require(!options.is_module || !options.is_program_itself, Status::kInvalidArgument,
          "--module and --no-python are both given; expected one of them");
  require(options.num_processes % options.num_machines == 0, Status::kInvalidArgument, "--num-processes is ",
          options.num_processes, "; expected a multiple of --num-machines, which is ", options.num_machines);
  require(options.machine_rank < options.num_machines, Status::kInvalidArgument, "--machine-rank is ",
          options.machine_rank, "; expected less than --num-machines, which is ", options.num_machines);
  plan_hosts(options);
  if (options.main_process_port == 0) options.main_process_port.reset();
}

}  // namespace accel::launch
