// SPDX-License-Identifier: Apache-2.0
// Processors of ranks on machines that are described by files as the kernel has them under /sys and the driver under
// /proc.
#include "machine/processor_affinity.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <numeric>
#include <set>
#include <thread>

#include "described_machine.hpp"
#include "machine/visible_gpus.hpp"

namespace accel::launch {
namespace processor_affinity_test {

using tests::DescribedMachine;
using Numbers = std::vector<int>;

// 2 packages with a memory node each, 4 cores each, 2 threads each: processors 0-7 are the first threads, 8-15 the
// second ones.
class TwoNodes : public DescribedMachine {
 public:
  TwoNodes() {
    for (int number = 0; number < 16; ++number) {
      const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/";
      write(topology + "physical_package_id", std::to_string(number % 8 / 4));
      write(topology + "core_id", std::to_string(number % 4));
    }
    write("/sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    write("/sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
    write("/sys/devices/system/node/online", "0-1\n");
  }
  void add_gpu(const std::string& address, const std::string& node, const std::string& uuid = "") {
    write("/proc/driver/nvidia/gpus/" + address + "/information", "Model: \t A GPU\nGPU UUID: \t " + uuid + "\n");
    write("/sys/bus/pci/devices/" + address + "/numa_node", node + "\n");
  }
  std::vector<Processor> processors() const {
    Numbers numbers(16);
    std::iota(numbers.begin(), numbers.end(), 0);
    return processor_topology(numbers, root());
  }
  std::vector<std::optional<int>> nodes(const std::string& ids = "all") const {
    std::vector<std::optional<int>> found;
    for (const std::string& address : visible_gpus(ids, root())) found.push_back(node_of_device(address, root()));
    return found;
  }
};

TEST(ProcessorAffinity, RanksShareWholeCoresOfOneNode) {
  const TwoNodes machine;
  EXPECT_EQ(processors_of_rank(machine.processors(), 0, 2, {}), (Numbers{0, 8, 1, 9, 2, 10, 3, 11}));
  EXPECT_EQ(processors_of_rank(machine.processors(), 1, 2, {}), (Numbers{4, 12, 5, 13, 6, 14, 7, 15}));
  EXPECT_EQ(processors_of_rank(machine.processors(), 5, 8, {}), (Numbers{5, 13}));
  // More ranks than cores: threads of a core are shared out, too.
  EXPECT_EQ(processors_of_rank(machine.processors(), 1, 16, {}), (Numbers{8}));
  EXPECT_EQ(processors_of_rank(machine.processors(), 0, 17, {}), Numbers());
}

TEST(ProcessorAffinity, RanksAreAtTheNodeOfTheirGpu) {
  TwoNodes machine;
  machine.add_gpu("0000:3b:00.0", "1");
  machine.add_gpu("0000:86:00.0", "0");
  machine.add_gpu("0000:AF:00.0", "1");
  EXPECT_EQ(node_of_device("0000:3B:00.0", machine.root()), 1);
  const auto nodes = machine.nodes();
  EXPECT_EQ(processors_of_rank(machine.processors(), 0, 2, nodes), (Numbers{4, 12, 5, 13, 6, 14, 7, 15}));
  EXPECT_EQ(processors_of_rank(machine.processors(), 1, 2, nodes), (Numbers{0, 8, 1, 9, 2, 10, 3, 11}));
}

TEST(ProcessorAffinity, RanksWhoseGpusAreAtOneNodeShareIt) {
  TwoNodes machine;
  machine.add_gpu("0000:01:00.0", "1");
  machine.add_gpu("0000:02:00.0", "1");
  EXPECT_EQ(processors_of_rank(machine.processors(), 0, 2, machine.nodes()), (Numbers{4, 12, 5, 13}));
  EXPECT_EQ(processors_of_rank(machine.processors(), 1, 2, machine.nodes()), (Numbers{6, 14, 7, 15}));
}

TEST(ProcessorAffinity, AGpuThatSaysNoNodeLeavesTheShare) {
  TwoNodes machine;
  machine.add_gpu("0000:01:00.0", "-1");
  EXPECT_EQ(machine.nodes(), std::vector<std::optional<int>>{std::nullopt});
  EXPECT_EQ(processors_of_rank(machine.processors(), 0, 2, machine.nodes()), (Numbers{0, 8, 1, 9, 2, 10, 3, 11}));
}

TEST(ProcessorAffinity, AMachineThatSaysNothingIsOneNodeOfCores) {
  const DescribedMachine nothing;
  const std::vector<Processor> processors = processor_topology({2, 0, 5}, nothing.root());
  ASSERT_EQ(processors.size(), 3U);
  EXPECT_EQ(processors_of_rank(processors, 1, 3, {}), (Numbers{2}));
  EXPECT_GE(usable_cores(nothing.root()), 1);
  EXPECT_EQ(visible_gpus("all", nothing.root()), std::vector<std::string>());
}

TEST(ProcessorAffinity, GpusAreChosenAsTheDriverDoes) {
  TwoNodes machine;
  machine.add_gpu("0000:01:00.0", "0", "GPU-aaaa-1");
  machine.add_gpu("0000:02:00.0", "1", "GPU-bbbb-2");
  using Addresses = std::vector<std::string>;
  EXPECT_EQ(visible_gpus("all", machine.root()), (Addresses{"0000:01:00.0", "0000:02:00.0"}));
  EXPECT_EQ(visible_gpus("1,0", machine.root()), (Addresses{"0000:02:00.0", "0000:01:00.0"}));
  EXPECT_EQ(visible_gpus("GPU-bb", machine.root()), Addresses{"0000:02:00.0"});
  EXPECT_EQ(visible_gpus("1,7,0", machine.root()), Addresses{"0000:02:00.0"});
  EXPECT_EQ(visible_gpus("", machine.root()), Addresses());
}

// As in a container whose /proc lacks the driver's folder.
// Regression: without `/proc/driver/nvidia` the launcher counted no GPU.
TEST(ProcessorAffinity, GpusAreCountedByTheirFilesWhereTheDriverHasNoFolder) {
  TwoNodes machine;
  for (const char* file : {"nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "null"})
    machine.write(std::string("/dev/") + file, "");
  using Files = std::vector<std::string>;
  EXPECT_EQ(visible_gpus("all", machine.root()), (Files{"nvidia0", "nvidia2", "nvidia10"}));
  EXPECT_EQ(visible_gpus("1", machine.root()), Files{"nvidia2"});
  EXPECT_EQ(visible_gpus("GPU-8c5a", machine.root()).size(), 1U);
  EXPECT_EQ(visible_gpus("", machine.root()), Files());
  EXPECT_EQ(machine.nodes("0"), std::vector<std::optional<int>>{std::nullopt});
}

// In a thread of its own, which is the one that is bound.
std::set<int> bound_processors(int rank, int ranks, Numbers& told) {
  std::set<int> bound;
  std::thread([&] {
    told = set_numa_affinity(rank, ranks, false);
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int number = 0; number < CPU_SETSIZE; ++number)
      if (CPU_ISSET(number, &set)) bound.insert(number);
  }).join();
  return bound;
}

TEST(ProcessorAffinity, SharesOfThisMachineAreTogetherAllAndHaveNoneTwice) {
  const size_t processors = processor_topology().size();
  for (size_t ranks = 1; ranks <= processors; ++ranks) {
    std::set<int> all;
    size_t sum = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      Numbers told;
      const std::set<int> bound = bound_processors(static_cast<int>(rank), static_cast<int>(ranks), told);
      EXPECT_EQ(bound, std::set<int>(told.begin(), told.end()));
      all.insert(bound.begin(), bound.end());
      sum += bound.size();
    }
    EXPECT_EQ(sum, processors);
    EXPECT_EQ(all.size(), processors);
  }
  Numbers told;
  EXPECT_EQ(bound_processors(0, static_cast<int>(processors) + 1, told).size(), processors);
  EXPECT_EQ(told, Numbers());
}

}  // namespace processor_affinity_test
}  // namespace accel::launch
