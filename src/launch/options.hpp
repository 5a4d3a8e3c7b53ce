// The parsed options of `accel launch`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;  // names and values

struct LaunchOptions {
  int num_processes = 1;  // on all machines together
  int num_machines = 1;
  int machine_rank = 0;
  std::optional<int> main_process_port;  // unset: a free one
  std::optional<int> num_cpu_threads_per_process;
  bool is_module = false;            // the program is the name of a module of Python
  bool is_program_itself = false;    // also when its name ends with .py
  Variables variables;               // of the ranks, for options that are passed to them
  std::vector<std::string> program;  // with its arguments

  int local_processes() const { return num_processes / num_machines; }
};

}  // namespace accel::launch
