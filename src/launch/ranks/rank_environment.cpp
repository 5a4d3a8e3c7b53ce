// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/rank_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/split_text.hpp"
#include "launch/ranks/stray_processes.hpp"
#include "machine/nvidia_driver.hpp"
#include "machine/processor_affinity.hpp"
#include "machine/processors.hpp"

namespace accel::launch {
namespace {

// `name` may be followed by '=' and a value.
bool is_set(const Variables& variables, std::string_view name) {
  name = name.substr(0, name.find('='));
  return std::any_of(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
}

// Whether ranks get what this process has inherited, "NAME=value"; `names` may end with *.
bool is_passed(std::string_view inherited, const std::optional<std::string>& names) {
  if (!names) return true;
  const std::string_view name = inherited.substr(0, inherited.find('='));
  const std::vector<std::string> patterns = split_text(*names);
  return std::any_of(patterns.begin(), patterns.end(), [name](const std::string& pattern) {
    return pattern.back() == '*' ? name.substr(0, pattern.size() - 1) == pattern.substr(0, pattern.size() - 1)
                                 : name == pattern;
  });
}

// Whether the variable is the mark of a launcher above this one, whose ranks have a mark of their own.
bool is_mark(std::string_view inherited) { return inherited.substr(0, inherited.find('=')) == kMarkVariable; }

}  // namespace

Variables rank_variables(const LaunchOptions& options, const HostRanks& host_ranks, int local_rank) {
  const int local_processes = host_ranks.local_processes;
  Variables variables = {
      {"RANK", std::to_string(host_ranks.first_rank + local_rank)},
      {"WORLD_SIZE", std::to_string(host_ranks.world_size)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(local_processes)},
      {"MASTER_PORT", std::to_string(host_ranks.master_port)},
      {"GROUP_RANK", std::to_string(host_ranks.host_number)},
      {"ACCEL_RESTART_COUNT", std::to_string(host_ranks.restart_count)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(host_ranks.restart_count)},
  };
  if (!host_ranks.token.empty()) variables.emplace_back("ACCEL_JOB_TOKEN", host_ranks.token);
  if (!host_ranks.master_addr.empty()) variables.emplace_back("MASTER_ADDR", host_ranks.master_addr);
  // Variables that the command line leaves open stay as the user's environment has them.
  for (const auto& variable : options.variables)
    if (!is_set(variables, variable.first)) variables.push_back(variable);
  if (!is_set(variables, "MASTER_ADDR")) variables.emplace_back("MASTER_ADDR", "127.0.0.1");
  const char* const threads_of_user = getenv("OMP_NUM_THREADS");
  int threads = threads_of_user == nullptr ? 0 : std::atoi(threads_of_user);
  if (options.num_cpu_threads_per_process || threads_of_user == nullptr) {
    static const int cores = usable_cores();  // many files
    threads = options.num_cpu_threads_per_process.value_or(std::max(1, cores / local_processes));
    variables.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
  // A thread that spins at a barrier takes the processor from the one that it waits for.
  const bool is_crowded = threads > 1 && threads * local_processes > usable_processors();
  if (is_crowded && getenv("OMP_WAIT_POLICY") == nullptr && getenv("GOMP_SPINCOUNT") == nullptr)
    variables.emplace_back("OMP_WAIT_POLICY", "passive");
  // Without these, ranks on GPUs that cannot copy to each other are refused.
  if (host_ranks.world_size > 1 && !driver_without_peer_copies().empty())
    for (const char* const name : {"NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"})
      if (!is_set(variables, name) && getenv(name) == nullptr) variables.emplace_back(name, "1");
  return variables;
}

std::vector<std::string> rank_environment(const LaunchOptions& options, const HostRanks& host_ranks, int local_rank) {
  const Variables variables = rank_variables(options, host_ranks, local_rank);
  std::vector<std::string> environment;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    if (!is_set(variables, *inherited) && !is_mark(*inherited) && is_passed(*inherited, options.environment))
      environment.emplace_back(*inherited);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + '=' + value);
  return environment;
}

}  // namespace accel::launch
