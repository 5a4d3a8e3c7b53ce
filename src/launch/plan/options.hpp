// SPDX-License-Identifier: Apache-2.0
// The settings of an `accel launch`, from its arguments, the environment and the configuration file.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/plan/host_options.hpp"
#include "launch/plan/output_options.hpp"

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

  OutputOptions output;

  std::vector<std::string> given;  // the options of the command line, as they are

  int max_restarts = 0;
  std::string rdzv_backend = "static", rdzv_conf, role = "default";
  std::string job_id;  // that ranks of one job know each other by; empty: a random one, if all are on this machine
  std::string hostfile;
  std::string mpirun_hostfile;
  std::string nnodes, rdzv_endpoint, rdzv_timeout;
  std::string secret_file, interface_name;
  // No question may wait for an answer that nobody gives, and a host that is gone must not be missed.
  std::string ssh_command = "ssh", ssh_options = "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";
  std::optional<std::string> environment;  // the variables of the launcher that ranks get; unset: all
  HostOptions hosts;                       // what follows from these

  int local_processes() const { return hosts.slots > 0 ? hosts.slots : num_processes / num_machines; }
};

}  // namespace accel::launch
