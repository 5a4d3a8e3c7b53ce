// SPDX-License-Identifier: Apache-2.0
#include "machine/processor_affinity.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <tuple>
#include <utility>

#include "base/environment.hpp"
#include "machine/visible_gpus.hpp"
#include "os/list_folder.hpp"

namespace accel::launch {
namespace {

std::optional<int> number_in(const std::string& file) {
  std::ifstream stream(file);
  int number = 0;
  if (!(stream >> number) || number < 0) return std::nullopt;
  return number;
}

// "0-3,8,10-11"
std::vector<int> numbers_of_list(const std::string& file) {
  std::vector<int> numbers;
  std::ifstream stream(file);
  int first = 0;
  char next = 0;
  while (stream >> first) {
    int last = first;
    if (stream.peek() == '-' && !(stream >> next >> last)) break;
    for (int number = first; number <= last && numbers.size() < CPU_SETSIZE; ++number) numbers.push_back(number);
    if (!(stream >> next) || next != ',') break;
  }
  return numbers;
}

bool is_node(const std::string& name) {
  return name.size() > 4 && name.compare(0, 4, "node") == 0 &&
         std::all_of(name.begin() + 4, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<int> usable_numbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> numbers;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number)
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  return numbers;
}

bool is_same_core(const Processor& one, const Processor& other) {
  return std::tie(one.package, one.core) == std::tie(other.package, other.core);
}

// The part of one of `ranks` ranks, by whole cores as long as each rank has one.
std::vector<int> share(const std::vector<Processor>& processors, size_t rank, size_t ranks) {
  std::vector<size_t> first_of_core;  // places in `processors`
  for (size_t i = 0; i < processors.size(); ++i)
    if (i == 0 || !is_same_core(processors[i], processors[i - 1])) first_of_core.push_back(i);
  const bool by_core = first_of_core.size() >= ranks;
  const size_t units = by_core ? first_of_core.size() : processors.size();
  if (units < ranks) return {};
  first_of_core.push_back(processors.size());
  const auto place = [&](size_t unit) { return by_core ? first_of_core[unit] : unit; };
  std::vector<int> numbers;
  for (size_t i = place(rank * units / ranks); i < place((rank + 1) * units / ranks); ++i)
    numbers.push_back(processors[i].number);
  return numbers;
}

}  // namespace

std::vector<Processor> processor_topology(const std::vector<int>& numbers, const std::string& root) {
  std::vector<Processor> processors;
  for (const int number : numbers) {
    const std::string topology = root + "/sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/";
    processors.push_back({number, number_in(topology + "physical_package_id").value_or(0),
                          number_in(topology + "core_id").value_or(number), 0});
  }
  const std::string nodes = root + "/sys/devices/system/node";
  if (is_folder(nodes)) {
    for (const std::string& name : list_folder(nodes)) {
      if (!is_node(name)) continue;
      const std::vector<int> of_node = numbers_of_list(nodes + '/' + name + "/cpulist");
      for (Processor& processor : processors)
        if (std::find(of_node.begin(), of_node.end(), processor.number) != of_node.end())
          processor.node = std::stoi(name.substr(4));
    }
  }
  std::sort(processors.begin(), processors.end(), [](const Processor& one, const Processor& other) {
    return std::tie(one.node, one.package, one.core, one.number) <
           std::tie(other.node, other.package, other.core, other.number);
  });
  return processors;
}

std::vector<Processor> processor_topology(const std::string& root) {
  return processor_topology(usable_numbers(), root);
}

int usable_cores(const std::string& root) {
  std::set<std::pair<int, int>> cores;
  for (const Processor& processor : processor_topology(root)) cores.emplace(processor.package, processor.core);
  return std::max(1, static_cast<int>(cores.size()));
}

std::optional<int> node_of_device(const std::string& pci_address, const std::string& root) {
  std::string address = pci_address;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return number_in(root + "/sys/bus/pci/devices/" + address + "/numa_node");
}

std::vector<int> processors_of_rank(const std::vector<Processor>& processors, int rank, int ranks,
                                    const std::vector<std::optional<int>>& nodes) {
  const auto node_of = [&](size_t one) { return one < nodes.size() ? nodes[one] : std::nullopt; };
  const auto place = static_cast<size_t>(rank);
  const std::optional<int> node = node_of(place);
  if (!node) return share(processors, place, static_cast<size_t>(ranks));
  std::vector<Processor> near;
  for (const Processor& processor : processors)
    if (processor.node == *node) near.push_back(processor);
  // Ranks whose GPUs are at the same node share it.
  size_t before = 0, together = 0;
  for (size_t one = 0; one < static_cast<size_t>(ranks); ++one) {
    if (node_of(one) != node) continue;
    if (one < place) ++before;
    ++together;
  }
  const std::vector<int> numbers = share(near, before, together);
  return numbers.empty() ? share(processors, place, static_cast<size_t>(ranks)) : numbers;
}

std::vector<int> set_numa_affinity(int local_rank, int local_processes, bool near_gpus) {
  std::vector<std::optional<int>> nodes;
  if (near_gpus)
    for (const std::string& address : visible_gpus(visible_gpu_ids())) nodes.push_back(node_of_device(address));
  const std::vector<int> numbers = processors_of_rank(processor_topology(), local_rank, local_processes, nodes);
  if (numbers.empty()) return numbers;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(number, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0 ? numbers : std::vector<int>();
}

std::vector<int> set_numa_affinity(int local_rank) {
  const int64_t gpus = static_cast<int64_t>(visible_gpus(visible_gpu_ids()).size());
  const int64_t ranks = environment_integer("LOCAL_WORLD_SIZE").value_or(gpus);
  return set_numa_affinity(local_rank, static_cast<int>(std::max<int64_t>(ranks, local_rank + 1)));
}

}  // namespace accel::launch
