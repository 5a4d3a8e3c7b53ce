// SPDX-License-Identifier: Apache-2.0
// Kinds of devices, and plugins that register them. A registration is for ever, so these tests have processes of their
// own.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceType.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/state_settings.hpp"
#include "data/device_copy.hpp"
#include "machine/nvidia_driver.hpp"
#include "own_process.hpp"
#include "state/device_choice.hpp"
#include "state/random.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_plugins.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/device/memory.hpp"

namespace accel::tensor {
namespace device_kinds_test {

using tests::in_own_process;

const std::string kNpu = ACCEL_TEST_PLUGINS "/libaccel_npu_device.so";
const std::string kOther = ACCEL_TEST_PLUGINS "/libaccel_other_device.so";
const std::string kWithoutHooks = ACCEL_TEST_PLUGINS "/libaccel_device_without_hooks.so";
const std::string kNothing = ACCEL_TEST_PLUGINS "/libaccel_no_device.so";

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Status::kOk, "no error");
}

StateSettings settings_of_rank(int64_t local_rank) {
  StateSettings settings;
  settings.local_process_index.value = local_rank;
  return settings;
}

TEST(DeviceKinds, NumbersAndNamesAreOneTable) {
  const std::vector<std::string> names = {"cpu", "cuda", "meta",   "mps", "mlu",  "sdaa", "musa", "npu",
                                          "hpu", "xpu",  "neuron", "xla", "mtia", "maia", "ipu",  "ve"};
  for (size_t number = 0; number < names.size(); number++) {
    const auto kind = static_cast<DeviceKind>(number);
    EXPECT_EQ(device_kind_name(kind), names[number]);
    EXPECT_EQ(find_device_kind(names[number]), kind);
    if (const auto type = device_type(kind)) {
      const DeviceNumbers numbers = device_numbers(c10::Device(*type));
      EXPECT_EQ(numbers.kind, static_cast<int32_t>(number));
      EXPECT_EQ(device_from_numbers(numbers), c10::Device(*type));
      EXPECT_EQ(parse_device(names[number]), c10::Device(*type));
    }
  }
  EXPECT_EQ(device_kind_name(DeviceKind::kOutOfTree), nullptr);
  EXPECT_EQ(device_kind_name(static_cast<DeviceKind>(17)), nullptr);
  EXPECT_EQ(device_kind_name(static_cast<DeviceKind>(-1)), nullptr);
  EXPECT_EQ(parse_device("xpu:3"), c10::Device(c10::DeviceType::XPU, 3));
}

TEST(DeviceKinds, UnknownNamesListTheKnownOnes) {
  for (const char* name : {"gpu", "", "cpu:1", "cuda:", "cuda:-1", "cuda:128", "cuda:1x", "privateuseone"}) {
    const Error error = error_of([&] { parse_device(name); });
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << name;
    EXPECT_NE(error.message().find("is not known; expected one of cpu, cuda, meta, mps, "), std::string::npos)
        << error.message();
    EXPECT_EQ(find_device(name), std::nullopt);
  }
}

TEST(DeviceKinds, WhatIsNotThereSaysWhy) {
  EXPECT_EQ(unavailable_reason(DeviceKind::kCpu), "");
  EXPECT_EQ(unavailable_reason(DeviceKind::kMps), "this LibTorch was built without MPS");
  EXPECT_EQ(unavailable_reason(DeviceKind::kNpu),
            "the plugin of npu is not loaded: give its library in ACCEL_DEVICE_PLUGINS");
  EXPECT_EQ(unavailable_reason(DeviceKind::kHpu),
            "the plugin of hpu is not loaded: give its library in ACCEL_DEVICE_PLUGINS");
  const Error npu = error_of([] { parse_device("npu:1"); });
  EXPECT_EQ(npu.status(), Status::kUnsupported);
  EXPECT_EQ(npu.message(), unavailable_reason(DeviceKind::kNpu));
  const Error hpu = error_of([] { empty({2}, at::kFloat, c10::Device(c10::DeviceType::HPU, 0)); });
  EXPECT_EQ(hpu.status(), Status::kUnsupported);
  EXPECT_EQ(hpu.message(), "device hpu:0 is not there: " + unavailable_reason(DeviceKind::kHpu));
  for (const DeviceKind kind : {DeviceKind::kMps, DeviceKind::kNpu, DeviceKind::kHpu, DeviceKind::kOutOfTree})
    EXPECT_EQ(device_count(kind), 0);
}

TEST(DeviceKinds, PluginOfAKnownNameHasItsNumber) {
  in_own_process([] {
    load_device_plugins(kNpu, "a test");
    load_device_plugins(kNpu, "a test");  // once is enough
    EXPECT_EQ(out_of_tree_name(), "npu");
    EXPECT_EQ(unavailable_reason(DeviceKind::kNpu), "");
    EXPECT_EQ(device_count(DeviceKind::kNpu), 3);
    const c10::Device device = parse_device("npu:2");
    EXPECT_EQ(device, c10::Device(c10::DeviceType::PrivateUse1, 2));
    EXPECT_EQ(device_numbers(device).kind, static_cast<int32_t>(DeviceKind::kNpu));
    EXPECT_EQ(device_kind_name(DeviceKind::kOutOfTree), nullptr);
    EXPECT_EQ(default_accelerator(), c10::Device(c10::DeviceType::PrivateUse1));
    EXPECT_EQ(unavailable_reason(DeviceKind::kMlu),
              "the plugin of mlu is not loaded: give its library in ACCEL_DEVICE_PLUGINS (the plugin that is loaded is "
              "of 'npu')");
  });
}

TEST(DeviceKinds, VariableNamesPlugins) {
  // It is read once, so the program is started anew for this.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  setenv("ACCEL_DEVICE_PLUGINS", kOther.c_str(), 1);
  const auto test = [] {
    const auto found = find_device("other");
    _exit(found == c10::Device(kOutOfTreeType) && device_count(DeviceKind::kOutOfTree) == 3 ? 0 : 1);
  };
  EXPECT_EXIT(test(), testing::ExitedWithCode(0), "");
  unsetenv("ACCEL_DEVICE_PLUGINS");
}

TEST(DeviceKinds, PluginOfAnotherNameHasTheNumberOfAll) {
  in_own_process([] {
    load_device_plugins(kOther, "a test");
    EXPECT_EQ(parse_device("other"), c10::Device(c10::DeviceType::PrivateUse1));
    EXPECT_STREQ(device_kind_name(DeviceKind::kOutOfTree), "other");
    EXPECT_EQ(device_numbers(parse_device("other:1")).kind, static_cast<int32_t>(DeviceKind::kOutOfTree));
    EXPECT_EQ(device_from_numbers({static_cast<int32_t>(DeviceKind::kOutOfTree), -1}), parse_device("other"));
    EXPECT_NE(error_of([] { parse_device("gpu"); }).message().find(", ve, other, and"), std::string::npos);
    const Error beyond = error_of([] { require_device(parse_device("other:3")); });
    EXPECT_EQ(beyond.status(), Status::kInvalidArgument);
    EXPECT_EQ(beyond.message(), "device other:3 is not there; this machine has 3 of this kind, other:0 to other:2");
  });
}

TEST(DeviceKinds, DevicesWithoutAPoolOfStreamsCopyInOrder) {
  in_own_process([] {
    load_device_plugins(kOther, "call");
    EXPECT_FALSE(data::DeviceCopy(parse_device("other:1"), /*non_blocking=*/true).is_asynchronous());
  });
}

TEST(DeviceKinds, RankChoosesItsDevice) {
  in_own_process([] {
    StateSettings settings = settings_of_rank(4);
    settings.device_plugins.value = kOther;
    const c10::Device expected(c10::DeviceType::PrivateUse1, 1);  // 4 of 3
    EXPECT_EQ(state::choose_device(settings), expected);
    EXPECT_EQ(current_device(c10::DeviceType::PrivateUse1), expected) << "it is made current";
    settings.cpu.value = true;
    EXPECT_EQ(state::choose_device(settings), c10::Device(c10::DeviceType::CPU));
    settings.torch_device.value = "other:2";
    EXPECT_EQ(state::choose_device(settings).index(), 2) << "the name wins over cpu";
    settings.torch_device.value = "other:3";
    settings.torch_device.source = "call";
    EXPECT_EQ(error_of([&] { state::choose_device(settings); }).message(),
              "torch_device is 'other:3' (from call): device other:3 is not there; this machine has 3 of this kind, "
              "other:0 to other:2");
    settings.torch_device.value = "meta";
    EXPECT_EQ(error_of([&] { state::choose_device(settings); }).status(), Status::kInvalidArgument);
    settings.torch_device.value = "mlu";
    EXPECT_EQ(error_of([&] { state::choose_device(settings); }).status(), Status::kUnsupported);
  });
}

TEST(DeviceKinds, PluginsThatCannotBeUsedAreNamed) {
  const Error missing = error_of([] { load_device_plugins("/nowhere/liba.so", "call"); });
  EXPECT_EQ(missing.status(), Status::kNotFound);
  EXPECT_EQ(missing.message(),
            "the device plugin '/nowhere/liba.so' (from call) is not there or cannot be read; expected the path of a "
            "shared library");
  in_own_process([] {
    const std::string broken = std::filesystem::temp_directory_path() / ("broken" + std::to_string(getpid()) + ".so");
    std::ofstream(broken) << "no library";
    const Error error = error_of([&] { load_device_plugins(broken, "call"); });
    std::filesystem::remove(broken);
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_NE(error.message().find("cannot be loaded: "), std::string::npos) << error.message();
  });
  in_own_process([] {
    for (int attempt = 0; attempt < 2; attempt++) {
      const Error error = error_of([] { load_device_plugins(kNothing, "call"); });
      EXPECT_EQ(error.status(), Status::kUnsupported);
      EXPECT_NE(error.message().find("registers no device with LibTorch"), std::string::npos) << error.message();
    }
  });
  in_own_process([] {
    const Error error = error_of([] { load_device_plugins(kNpu + ":" + kOther, "call"); });
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_NE(error.message().find("LibTorch has place for one, which is 'npu' in this process"), std::string::npos)
        << error.message();
    EXPECT_EQ(out_of_tree_name(), "npu") << "the first one stays";
  });
  in_own_process([] {
    load_device_plugins(kWithoutHooks, "call");
    const Error error = error_of([] { require_device(parse_device("hookless")); });
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_NE(error.message().find("registers no hooks"), std::string::npos) << error.message();
    EXPECT_EQ(default_accelerator(), std::nullopt);
  });
}

TEST(DeviceKinds, WhatAPluginLacksIsNamed) {
  in_own_process([] {
    load_device_plugins(kOther, "call");
    const c10::Device device = parse_device("other:1");
    for (const auto& [call, expected] : std::vector<std::pair<std::function<void()>, std::string>>{
             {[&] { synchronize(device); }, "device other:1 cannot synchronize: its plugin does not implement that"},
             {[&] { device_memory(device); },
              "device other:1 counts no memory: its allocator is not a c10::DeviceAllocator"},
             {[&] { tensor::new_generator(1, device); },
              "device other:1 draws no random numbers: its plugin has no generators; expected cpu"}}) {
      const Error error = error_of(call);
      EXPECT_EQ(error.status(), Status::kUnsupported);
      EXPECT_EQ(error.message(), expected);
    }
    empty_cache(device.type());  // it keeps nothing
    EXPECT_TRUE(supports_dtype(device, at::kBFloat16)) << "it does not tell";
    EXPECT_FALSE(tensor::has_default_generator(device));
    state::set_seed_of_default_generators(1);  // those that are there
  });
}

TEST(DeviceKinds, GeneratorsAreOfTheKindOfTheDevice) {
  const c10::Device cpu(c10::DeviceType::CPU);
  state::check_rng_types("torch", cpu, false);
  EXPECT_EQ(error_of([&] { state::check_rng_types("npu", cpu, false); }).status(), Status::kUnsupported);
  EXPECT_EQ(error_of([&] { state::check_rng_types("cpu", cpu, false); }).status(), Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { state::check_rng_types("dice", cpu, false); }).status(), Status::kInvalidArgument);
  in_own_process([] {
    load_device_plugins(kNpu, "call");
    state::check_rng_types("torch,npu", parse_device("npu:0"), false);
    const Error error = error_of([] { state::check_rng_types("mlu", parse_device("npu:0"), false); });
    EXPECT_EQ(error.message(), "rng_types has 'mlu' and the state's device is npu:0; expected torch or npu");
  });
}

// The files of a driver of NVIDIA.
class DriverFiles {
 public:
  DriverFiles() : folder_(std::filesystem::temp_directory_path() / ("driver" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~DriverFiles() { std::filesystem::remove_all(folder_); }
  void set_version(const std::string& version) const {
    std::ofstream(folder_ / "version") << "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " << version
                                       << "  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc version 12.3.0\n";
  }
  void add_gpu(const std::string& model) {
    const auto gpu = folder_ / "gpus" / ("0000:0" + std::to_string(count_++) + ":00.0");
    std::filesystem::create_directories(gpu);
    std::ofstream(gpu / "information") << "Model: \t\t " << model << "\nIRQ:   \t\t 42\n";
  }
  std::string folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

TEST(DeviceKinds, OldDriversOfTheRtx40SeriesAreFound) {
  EXPECT_EQ(driver_without_peer_copies("/nowhere"), "");
  DriverFiles files;
  files.set_version("535.129.03");
  EXPECT_EQ(driver_without_peer_copies(files.folder()), "");
  files.add_gpu("NVIDIA GeForce RTX 4090");
  EXPECT_EQ(driver_without_peer_copies(files.folder()), "") << "one GPU copies to no other";
  files.add_gpu("NVIDIA GeForce RTX 3090");
  EXPECT_EQ(driver_without_peer_copies(files.folder()), "535.129.03");
  for (const char* old : {"550.40", "550.40.06", "550.9.99", "549.99.99"}) {
    files.set_version(old);
    EXPECT_EQ(driver_without_peer_copies(files.folder()), old);
  }
  for (const char* recent : {"550.40.07", "550.54.14", "570.86.10"}) {
    files.set_version(recent);
    EXPECT_EQ(driver_without_peer_copies(files.folder()), "") << recent;
  }
}

}  // namespace device_kinds_test
}  // namespace accel::tensor
