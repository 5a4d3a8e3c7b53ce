#include "launch/options.hpp"

#include <getopt.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <initializer_list>

#include "base/error.hpp"

namespace accel::launch {
namespace {

enum Option : int {
  kNumProcesses = 256,  // above every character, which getopt_long returns as well
  kNumMachines,
  kMachineRank,
  kMainProcessIp,
  kMainProcessPort,
  kMixedPrecision,
  kGradientAccumulationSteps,
  kNumCpuThreadsPerProcess,
  kCpu,
  kDebug,
  kCpuAffinity,
  kHelpOption,
};

constexpr option kOptions[] = {
    {"num-processes", required_argument, nullptr, kNumProcesses},
    {"num-machines", required_argument, nullptr, kNumMachines},
    {"machine-rank", required_argument, nullptr, kMachineRank},
    {"main-process-ip", required_argument, nullptr, kMainProcessIp},
    {"main-process-port", required_argument, nullptr, kMainProcessPort},
    {"mixed-precision", required_argument, nullptr, kMixedPrecision},
    {"gradient-accumulation-steps", required_argument, nullptr, kGradientAccumulationSteps},
    {"num-cpu-threads-per-process", required_argument, nullptr, kNumCpuThreadsPerProcess},
    {"cpu", no_argument, nullptr, kCpu},
    {"debug", no_argument, nullptr, kDebug},
    {"enable-cpu-affinity", no_argument, nullptr, kCpuAffinity},
    {"help", no_argument, nullptr, kHelpOption},
    {nullptr, 0, nullptr, 0},
};

constexpr char kHelpText[] =
    R"(usage: accel launch [OPTION ...] [--] PROGRAM [ARGUMENT ...]

Starts PROGRAM in several processes and tells each its rank. The output of rank 0 is shown as it is; of a failing rank the
last lines are shown. When a rank fails, the others are ended and the exit status is that of the failed one.

  --num-processes N                on all machines together (default 1)
  --mixed-precision KIND           no, fp16, bf16 or fp8
  --gradient-accumulation-steps N  batches for each step of the optimizer
  --cpu                            use no accelerator
  --debug                          check that the ranks agree before each collective
  --num-cpu-threads-per-process N  OMP_NUM_THREADS (default: the environment's, else processors / processes)
  --enable-cpu-affinity            bind each process to its share of the processors
  --num-machines N                 run the same command on each machine (default 1)
  --machine-rank N                 which of the machines this is (default 0)
  --main-process-ip ADDRESS        the machine of rank 0 (default 127.0.0.1)
  --main-process-port PORT         where rank 0 listens (default: a free port; 29500 with several machines)
)";

int parse_integer(const char* name, const char* value, int least, int most) {
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(value, &end, 10);
  const bool is_number = end != value && *end == '\0' && errno == 0;
  require(is_number && number >= least && number <= most, Status::kInvalidArgument, "--", name, " is '", value,
          "'; expected an integer from ", least, " to ", most);
  return static_cast<int>(number);
}

std::string parse_choice(const char* name, const char* value, std::initializer_list<const char*> choices) {
  std::string listed;
  for (const char* choice : choices) {
    if (std::string(value) == choice) return value;
    listed += listed.empty() ? choice : std::string(", ") + choice;
  }
  fail(Status::kInvalidArgument, "--", name, " is '", value, "'; expected one of ", listed);
}

// The reference takes --num_processes as well as --num-processes.
void use_dashes(char* argument) {
  if (argument[0] != '-' || argument[1] != '-') return;
  for (char* letter = argument + 2; *letter != '\0' && *letter != '='; ++letter) {
    if (*letter == '_') *letter = '-';
  }
}

void apply(LaunchOptions& options, int option, const char* value) {
  constexpr int kMostProcesses = 65536;
  switch (option) {
    case kNumProcesses:
      options.num_processes = parse_integer("num-processes", value, 1, kMostProcesses);
      break;
    case kNumMachines:
      options.num_machines = parse_integer("num-machines", value, 1, kMostProcesses);
      break;
    case kMachineRank:
      options.machine_rank = parse_integer("machine-rank", value, 0, kMostProcesses);
      break;
    case kMainProcessIp:
      require(*value != '\0', Status::kInvalidArgument, "--main-process-ip is empty; expected an address");
      options.main_process_ip = value;
      break;
    case kMainProcessPort:
      options.main_process_port = parse_integer("main-process-port", value, 0, 65535);
      break;
    case kMixedPrecision:
      options.mixed_precision = parse_choice("mixed-precision", value, {"no", "fp16", "bf16", "fp8"});
      break;
    case kGradientAccumulationSteps:
      options.gradient_accumulation_steps = parse_integer("gradient-accumulation-steps", value, 1, 1 << 30);
      break;
    case kNumCpuThreadsPerProcess:
      options.num_cpu_threads_per_process = parse_integer("num-cpu-threads-per-process", value, 1, kMostProcesses);
      break;
    case kCpu:
      options.cpu = true;
      break;
    case kDebug:
      options.debug = true;
      break;
    case kCpuAffinity:
      options.cpu_affinity = true;
      break;
    case kHelpOption:
      options.help = true;
      break;
    default:
      fail(Status::kInternal, "option ", option, " has no meaning");
  }
}

void check_machines(LaunchOptions& options) {
  require(options.num_processes % options.num_machines == 0, Status::kInvalidArgument, "--num-processes is ",
          options.num_processes, "; expected a multiple of --num-machines, which is ", options.num_machines);
  require(options.machine_rank < options.num_machines, Status::kInvalidArgument, "--machine-rank is ",
          options.machine_rank, "; expected less than --num-machines, which is ", options.num_machines);
  if (options.main_process_port == 0) options.main_process_port.reset();
  if (options.num_machines > 1 && !options.main_process_port) options.main_process_port = 29500;
}

}  // namespace

const char* launch_help() { return kHelpText; }

LaunchOptions parse_launch_options(const std::vector<std::string>& arguments) {
  std::vector<std::string> storage{"launch"};
  storage.insert(storage.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : storage) pointers.push_back(argument.data());
  const int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);

  LaunchOptions options;
  opterr = 0;
  optind = 1;
  while (true) {
    const int at = optind;
    if (at < count) use_dashes(pointers[at]);
    // "+": stop at the program's name. ":": tell a missing value from an unknown option.
    const int found = getopt_long(count, pointers.data(), "+:h", kOptions, nullptr);
    if (found == -1) break;
    require(found != '?', Status::kInvalidArgument, "'", pointers[at], "' is not an option; see accel launch --help");
    require(found != ':', Status::kInvalidArgument, pointers[at], " has no value; see accel launch --help");
    apply(options, found == 'h' ? static_cast<int>(kHelpOption) : found, optarg);
  }
  options.program.assign(storage.begin() + std::min(optind, count), storage.end());
  if (options.help) return options;
  require(!options.program.empty(), Status::kInvalidArgument,
          "no program is given; expected accel launch [OPTION ...] PROGRAM");
  check_machines(options);
  return options;
}

}  // namespace accel::launch
