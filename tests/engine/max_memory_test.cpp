// SPDX-License-Identifier: Apache-2.0
// The memory that models may have: what is given, and what the host has.
#include "bigmodel/device_map/max_memory.hpp"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/byte_size.hpp"
#include "base/log.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "expect_error.hpp"
#include "machine/host_memory.hpp"
#include "own_process.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_plugins.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace max_memory_test {

// Files as the kernel has them.
class FakeRoot {
 public:
  FakeRoot() {
    char name[] = "/tmp/accel_memory_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~FakeRoot() { EXPECT_EQ(std::system(("rm -r " + path_).c_str()), 0); }
  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& content) const {
    for (size_t slash = file.find('/', 1); slash != std::string::npos; slash = file.find('/', slash + 1))
      mkdir((path_ + file.substr(0, slash)).c_str(), 0700);
    std::ofstream(path_ + file) << content;
  }

 private:
  std::string path_;
};

TEST(MaxMemory, OfTheHostIsWhatTheKernelEstimates) {
  const FakeRoot root;
  tests::expect_error(Status::kUnsupported, "MemAvailable", [&] { available_host_memory(root.path()); });
  root.write("/proc/meminfo",
             "MemTotal:       24000000 kB\nMemFree:          100 kB\nMemAvailable:   2048 kB\nBuffers: 5 kB\n");
  EXPECT_EQ(available_host_memory(root.path()), 2048 * 1024);
  root.write("/sys/fs/cgroup/memory.max", "max\n");
  root.write("/sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(available_host_memory(root.path()), 2048 * 1024);
}

TEST(MaxMemory, OfTheHostIsLimitedByEveryGroupAbove) {
  const FakeRoot root;
  root.write("/proc/meminfo", "MemAvailable: 2048 kB\n");
  root.write("/proc/self/cgroup", "1:cpu:/other\n0::/jobs/one\n");
  root.write("/sys/fs/cgroup/jobs/one/memory.max", "500000\n");
  root.write("/sys/fs/cgroup/jobs/one/memory.current", "300000\n");
  root.write("/sys/fs/cgroup/jobs/one/memory.stat", "anon 200000\ninactive_file 100000\n");
  EXPECT_EQ(available_host_memory(root.path()), 300000);
  root.write("/sys/fs/cgroup/jobs/memory.max", "1000\n");
  root.write("/sys/fs/cgroup/jobs/memory.current", "900\n");
  EXPECT_EQ(available_host_memory(root.path()), 100);
  root.write("/sys/fs/cgroup/memory.max", "1000\n");
  root.write("/sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(available_host_memory(root.path()), 0);
}

TEST(MaxMemory, OfThisMachine) {
  const MaxMemory memory = available_memory();
  ASSERT_FALSE(memory.empty());
  EXPECT_EQ(memory.back().first, "cpu");
  EXPECT_GT(memory.back().second, 0);
}

double bytes_of(const MaxMemory& memory, const std::string& place) {
  for (const auto& [name, bytes] : memory)
    if (name == place) return bytes;
  return -1;
}

TEST(MaxMemory, OfAcceleratorsIsWhatIsFreeOnEach) {
  tests::in_own_process([] {
    const char* const plugin = std::getenv("SIMULATED_DEVICE_LIBRARY");
    ASSERT_NE(plugin, nullptr) << "SIMULATED_DEVICE_LIBRARY is not set; run the registered test";
    tensor::load_device_plugins(plugin, "a test");
    const auto accelerator = tensor::default_accelerator();
    ASSERT_TRUE(accelerator.has_value());
    const int64_t count = tensor::device_count(tensor::device_kind(*accelerator));
    const MaxMemory before = available_memory();
    ASSERT_EQ(static_cast<int64_t>(before.size()), count + 1);
    EXPECT_EQ(before.front().first, "0");
    EXPECT_EQ(before.back().first, "cpu");
    const at::Tensor tensor = tensor::empty({64 << 20}, at::kByte, c10::Device(accelerator->type(), 0));
    const MaxMemory after = available_memory();
    EXPECT_LE(bytes_of(after, "0"), bytes_of(before, "0") - (64 << 20));
    EXPECT_EQ(bytes_of(after, "1"), bytes_of(before, "1"));

    // An accelerator that is there and one that is not.
    static int warnings = 0;
    set_log_callback([](int32_t level, const char*, void*) { warnings += level == 30 ? 1 : 0; }, nullptr, nullptr);
    ordered_memory({{"0", 1}, {std::to_string(count - 1), 1}});
    EXPECT_EQ(warnings, 0);
    ordered_memory({{std::to_string(count), 1}});
    EXPECT_EQ(warnings, 1);
    set_log_callback(nullptr, nullptr, nullptr);
  });
}

MaxMemory read(const std::string& json) { return read_max_memory(tree::from_json(json, "test"), "max_memory"); }

TEST(MaxMemory, IsReadInTheOrderInWhichDevicesAreFilled) {
  EXPECT_EQ(read(R"({"disk": 5, "cpu": "1.5KB", "10": 7, "xpu:1": "1KiB", "2": 0.5})"),
            (MaxMemory{{"2", 0.5}, {"10", 7}, {"xpu:1", 1024}, {"cpu", 1500}, {"disk", 5}}));
}

TEST(MaxMemory, RefusesWhatIsNoMemory) {
  tests::expect_error(Status::kInvalidArgument, "device 'gpu' is not known", [] { read(R"({"gpu": 5})"); });
  tests::expect_error(Status::kInvalidArgument, "size '3TB' is not known", [] { read(R"({"cpu": "3TB"})"); });
  tests::expect_error(Status::kInvalidArgument, "max_memory of 'cpu' is -1", [] { read(R"({"cpu": -1})"); });
  tests::expect_error(Status::kInvalidArgument, "'meta'", [] { read(R"({"meta": 1})"); });
  tests::expect_error(Status::kTypeMismatch, "max_memory['cpu'] is a", [] { read(R"({"cpu": [1]})"); });
  tests::expect_error(Status::kTypeMismatch, "max_memory is a", [] { read("5"); });
  auto twice = tree::new_map();
  twice.insert(int64_t{1}, int64_t{5});
  twice.insert("1", int64_t{6});
  tests::expect_error(Status::kInvalidArgument, "twice", [&] { read_max_memory(twice, "max_memory"); });
}

TEST(MaxMemory, SizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_byte_size("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(parse_byte_size("1.5 mib"), 3 << 19);
  EXPECT_EQ(parse_byte_size("1Gb"), 125000000);
  for (const char* const wrong : {"", "5", "GB", "-1GB", "1e400GB", "5 TB", "0x5KB", "infGB", "nanGB"})
    tests::expect_error(Status::kInvalidArgument, "is not known", [&] { parse_byte_size(wrong); });
}

}  // namespace max_memory_test
}  // namespace accel::bigmodel
