// SPDX-License-Identifier: Apache-2.0
// Which processors a rank should use: those of the NUMA node that its GPU is at, or a fair share of the physical cores.
// Reads the kernel's files under /sys; `root` is "" for the system's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace accel::launch {

struct Processor {
  int number = 0;
  int package = 0, core = 0;  // processors with the same of both are threads of one physical core
  int node = 0;               // of memory
};

// The processors that this process may use, or those in `numbers`, sorted by node, package, core and number. Where the
// kernel does not tell the core, each processor counts as a core of its own at node 0.
std::vector<Processor> processor_topology(const std::string& root = "");
std::vector<Processor> processor_topology(const std::vector<int>& numbers, const std::string& root);

// Physical cores that this process may use, at least 1.
int usable_cores(const std::string& root = "");

// The node of a device on the PCI bus; nothing if the machine has one node or does not say.
std::optional<int> node_of_device(const std::string& pci_address, const std::string& root = "");

// The processors of one of `ranks` ranks of this host: ranks with GPUs (one address each, empty: none) share those of
// the GPU's node among them; others share all by whole cores. Empty: there are fewer processors than ranks.
std::vector<int> processors_of_rank(const std::vector<Processor>& processors, int rank, int ranks,
                                    const std::vector<std::optional<int>>& nodes);

// Binds this thread, and those that it starts, to the processors of its local rank; returns their numbers, which are
// none if it was not bound. `near_gpus`: ranks compute on the GPUs that they see, each on that of its number.
std::vector<int> set_numa_affinity(int local_rank, int local_processes, bool near_gpus = true);
// The number of ranks comes from LOCAL_WORLD_SIZE, else from the number of GPUs.
std::vector<int> set_numa_affinity(int local_rank);

}  // namespace accel::launch
