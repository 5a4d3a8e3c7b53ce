// What the command line of `accel launch` asks for.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace accel::launch {

struct LaunchOptions {
  int num_processes = 1;  // on all machines together
  int num_machines = 1;
  int machine_rank = 0;
  std::string main_process_ip = "127.0.0.1";
  std::optional<int> main_process_port;  // unset: a free one
  std::optional<std::string> mixed_precision;
  std::optional<int> gradient_accumulation_steps;
  std::optional<int> num_cpu_threads_per_process;
  bool cpu = false;
  bool debug = false;
  bool cpu_affinity = false;
  bool help = false;
  std::vector<std::string> program;  // with its arguments

  int local_processes() const { return num_processes / num_machines; }
};

// `arguments` are those after the word `launch`. Options end at `--` or at the program's name; their names may be
// written with
// `-` or `_`. Anything wrong is an Error with Status::kInvalidArgument.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);

// The text of `accel launch --help`.
const char* launch_help();

}  // namespace accel::launch
