// SPDX-License-Identifier: Apache-2.0
// What the launcher says of ranks that failed, and what it takes from the kernel for it.
#include "launch/ranks/failure_report.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "described_machine.hpp"
#include "launch/environment_report.hpp"
#include "launch/ranks/output_streams.hpp"
#include "machine/memory_kills.hpp"

namespace accel::launch {
namespace failure_report_test {

using std::chrono::milliseconds;
using tests::DescribedMachine;

ProcessEnd ended(bool by_signal, int number, std::chrono::steady_clock::time_point when, int64_t memory = 0) {
  ProcessEnd end;
  end.by_signal = by_signal;
  end.number = number;
  end.when = when;
  end.peak_memory = memory;
  return end;
}

RankFailure failure_of(bool by_signal, int number) {
  RankFailure failure;
  failure.start = std::chrono::steady_clock::now();
  failure.first = {3, ended(by_signal, number, failure.start + milliseconds(1500), 2'500'000'000)};
  failure.told_to_end = failure.start + milliseconds(1510);
  return failure;
}

TEST(FailureReport, ItSaysWhoWhenAndHow) {
  RankFailure failure = failure_of(false, 7);
  failure.last_lines = {"one", "two"};
  failure.log_file = "logs/rank_3.log";
  EXPECT_EQ(describe(failure),
            "accel launch: rank 3 failed: exit status 7\n"
            "accel launch: it ran for 1.50 s and had up to 2.5 GB of memory\n"
            "the last lines of rank 3:\n  one\n  two\n"
            "accel launch: all that it wrote is in logs/rank_3.log\n");
}

TEST(FailureReport, OfAKilledRankItSaysWhetherMemoryRanOut) {
  RankFailure failure = failure_of(true, SIGKILL);
  EXPECT_EQ(describe(failure).find("the kernel"), std::string::npos);  // it says nothing
  failure.memory_kills = 0;
  EXPECT_NE(describe(failure).find("; the kernel has killed no process for lack of memory meanwhile\n"),
            std::string::npos);
  failure.memory_kills = 2;
  EXPECT_NE(describe(failure).find("; meanwhile memory ran out and the kernel killed 2 processes\n"),
            std::string::npos);
}

TEST(FailureReport, OfTheOthersItSaysWhatIsUnusual) {
  RankFailure failure = failure_of(false, 1);
  const auto before = failure.told_to_end - milliseconds(5), later = failure.told_to_end + milliseconds(5);
  failure.others = {{0, ended(true, SIGTERM, later)}, {1, ended(false, 0, before)},
                    {2, ended(true, SIGKILL, later)}, {4, ended(true, SIGKILL, later)},
                    {5, ended(true, SIGKILL, later)}, {6, ended(false, 9, before)},
                    {7, ended(false, 4, later)}};
  const std::string report = describe(failure);
  EXPECT_NE(report.find("ranks 2, 4-5: killed, still running long after SIGTERM\n"), std::string::npos) << report;
  EXPECT_NE(report.find("rank 6: failed, too: exit status 9\n"), std::string::npos) << report;
  EXPECT_NE(report.find("rank 7: ended after SIGTERM: exit status 4\n"), std::string::npos) << report;
  EXPECT_EQ(report.find("rank 0"), std::string::npos);
  EXPECT_EQ(report.find("rank 1:"), std::string::npos);
  EXPECT_EQ(rank_ranges({5, 0, 3, 4, 9}), "0, 3-5, 9");
}

TEST(FailureReport, KillsForMemoryAreThoseOfTheControlGroup) {
  const DescribedMachine version_2, version_1, host;
  version_2.write("/proc/self/cgroup", "0::/job\n");
  version_2.write("/sys/fs/cgroup/job/memory.events", "low 0\noom 5\noom_kill 3\n");
  version_1.write("/proc/self/cgroup", "4:cpu:/job\n3:memory:/job\n");
  version_1.write("/sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 1\n");
  host.write("/proc/vmstat", "pgfault 9\noom_kill 7\n");
  const MemoryKills of_2(version_2.root()), of_1(version_1.root()), of_host(host.root());
  EXPECT_EQ(of_2.since(), 0);
  version_2.write("/sys/fs/cgroup/job/memory.events", "low 0\noom 5\noom_kill 5\n");
  version_1.write("/sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 2\n");
  host.write("/proc/vmstat", "pgfault 9\noom_kill 8\n");
  EXPECT_EQ(of_2.since(), 2);
  EXPECT_EQ(of_1.since(), 1);
  EXPECT_EQ(of_host.since(), 1);
  const DescribedMachine nothing;
  EXPECT_EQ(MemoryKills(nothing.root()).since(), std::nullopt);
}

TEST(FailureReport, SecretsAreMaskedByTheirNames) {
  for (const char* const name : {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "ACCEL_JOB_TOKEN", "my_password", "api_key"})
    EXPECT_EQ(masked_value(name, "x"), "***") << name;
  EXPECT_EQ(masked_value("OMP_NUM_THREADS", "2"), "2");
}

}  // namespace failure_report_test
}  // namespace accel::launch
