// SPDX-License-Identifier: Apache-2.0
// Saves of what is on an accelerator: asynchronous ones copy it there, and all are written through a small ring of
// page-locked memory.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/checkpoints/background_save.hpp"
#include "base/log.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint/save_training_state.hpp"
#include "checkpoint/snapshot.hpp"
#include "config/generated/settings/state/state.hpp"
#include "device_fixture.hpp"
#include "engine/checkpoint_fixture.hpp"
#include "engine/expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "rank_threads.hpp"
#include "tensor/device/host_ring.hpp"

namespace accel::accelerator {
namespace device_saves_test {

using checkpoint::SaveOptions;
using checkpoint::tests::Folder;
using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

constexpr std::chrono::milliseconds kLong(60000);
constexpr int64_t kRing = 64 << 10;
constexpr int64_t kKiB = 1024;

StateSettings on_device(c10::Device device) {
  StateSettings settings;
  settings.torch_device = device.str();
  settings.num_processes = 1;
  settings.process_index = 0;
  return settings;
}

class DeviceSaves : public tests::DeviceTest {
 protected:
  DeviceSaves() : DeviceTest(tests::LateStreams{5, 300}) {}

  // Tensors smaller and larger than the ring, a view, a transposed one, and an empty one.
  static nn::ModulePtr make_model() {
    auto model = std::make_shared<nn::CallbackModule>("Numbers");
    const at::NoGradGuard no_grad;
    model->add_parameter("large", at::randn({75, kKiB}));
    model->add_parameter("small", at::randn({3}));
    model->add_parameter("rows", at::randn({300, 64}).narrow(0, 100, 150));
    model->add_parameter("transposed", at::randn({130, 70}).t());
    model->add_parameter("none", at::randn({0, 4}));
    model->add_parameter("half", at::randn({33, 65}).to(at::kHalf));
    return model;
  }
  static Tensors values_of(const nn::ModulePtr& model) {
    Tensors values;
    for (const char* const name : {"large", "small", "rows", "transposed", "none", "half"})
      values.emplace_back(name, nn::find_tensor(*model, name).detach().cpu());
    return values;
  }
  static void change(const nn::ModulePtr& model) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model->parameters()) const_cast<at::Tensor&>(parameter).fill_(-7);
  }
  static void expect_saved(const std::string& file, const Tensors& values) {
    const c10::IValue saved = checkpoint::load_value(file);
    for (const auto& [name, value] : values)
      EXPECT_TRUE(at::equal(saved.toGenericDict().at(name).toTensor(), value)) << file << ": " << name;
  }
  static simulated_device_statistics statistics() {
    simulated_device_statistics now{};
    simulation().get_statistics(0, &now);
    return now;
  }
  static SaveOptions asynchronous() {
    SaveOptions options;
    options.asynchronous = true;
    options.page_locked_bytes = kRing;
    return options;
  }
};

TEST_F(DeviceSaves, HaveWhatWasThereWhenTheCallReturned) {
  Accelerator accelerator(on_device(device()));
  const nn::ModulePtr model = make_model();
  accelerator.preparation().prepare_model(model);
  struct Way {
    bool safe;
    int64_t compression;
    const char* file;
  };
  const Folder folder;
  for (const bool background : {true, false})
    for (const Way& way :
         {Way{true, 0, "model.safetensors"}, {false, 0, "pytorch_model.bin"}, {true, 1, "model.ztensors"}}) {
      SCOPED_TRACE(std::string(way.file) + (background ? ", asynchronous" : ""));
      const Tensors values = values_of(model);
      SaveOptions options = asynchronous();
      options.asynchronous = background;
      options.safe_serialization = way.safe;
      options.compression_level = way.compression;
      const int64_t held = allocated();
      simulated_device_statistics before{};
      if (is_simulated()) {
        simulation().reset_peak_pinned();
        before = statistics();
      }
      const std::string path = folder / (std::string(way.file) + (background ? "_asynchronous" : ""));
      accelerator.projects().save_checkpoint(path, options);
      change(model);
      EXPECT_TRUE(accelerator.projects().wait_for_checkpoint(kLong));
      expect_saved(path + "/" + way.file, values);
      EXPECT_EQ(allocated(), held) << "a copy is left";
      if (!is_simulated()) continue;
      EXPECT_EQ(statistics().pageable_copies, before.pageable_copies);
      EXPECT_LE(statistics().peak_pinned_bytes, before.pinned_bytes + kRing);
      EXPECT_EQ(statistics().pinned_bytes, before.pinned_bytes);
      const at::NoGradGuard no_grad;
      nn::find_tensor(*model, "large").copy_(at::randn({75, kKiB}));
    }
}

TEST_F(DeviceSaves, DoNotHoldTheLoop) {
  NEEDS_SIMULATION("kernels that take a given time");
  Accelerator accelerator(on_device(device()));
  const nn::ModulePtr model = make_model();
  accelerator.preparation().prepare_model(model);
  const Tensors values = values_of(model);
  const Folder folder;
  for (const char* const name : {"first", "second"}) {
    const int64_t waits = statistics().host_waits;
    keep_busy(device(), 3000000);
    const auto begin = std::chrono::steady_clock::now();
    accelerator.projects().save_checkpoint(folder / name, asynchronous());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    EXPECT_EQ(statistics().host_waits, waits);
    EXPECT_TRUE(accelerator.projects().checkpoint_progress().is_busy);
    EXPECT_TRUE(accelerator.projects().wait_for_checkpoint(kLong));
    expect_saved(folder / (std::string(name) + "/model.safetensors"), values);
  }
}

// A lazily conjugated tensor is copied on its own; the writer waits for that, too.
TEST_F(DeviceSaves, HaveConjugatedNumbers) {
  const at::Tensor numbers = at::randn({3000}, at::kComplexFloat), there = numbers.to(device());
  BackgroundSave background;
  const Folder folder;
  for (int round = 0; round < 5; round++) {
    const std::string path = folder / std::to_string(round);
    auto writer = std::make_unique<checkpoint::TrainingStateWriter>(path, asynchronous(), checkpoint::Ranks(),
                                                                    checkpoint::tests::quick_files());
    if (is_simulated()) keep_busy(device(), 20000);
    checkpoint::TrainingState state = writer->collect(
        [&](const std::string&) {
          checkpoint::TrainingState given{
              {checkpoint::StateKind::kModel, "", checkpoint::model_state({{"a", there.conj()}, {"b", there}}), {}}};
          EXPECT_EQ(background.copy(given), "");
          return given;
        },
        {});
    background.start(path, std::move(writer), std::move(state), {}, [](const checkpoint::Ranks&) {});
    EXPECT_EQ(background.finish(), path);
    expect_saved(path + "/model.safetensors", {{"a", numbers.conj().resolve_conj()}, {"b", numbers}});
  }
}

// The next one waits for the first, and the copies of each are those of its call.
TEST_F(DeviceSaves, FollowEachOther) {
  Accelerator accelerator(on_device(device()));
  const nn::ModulePtr model = make_model();
  accelerator.preparation().prepare_model(model);
  const int64_t held = allocated();
  const Folder folder;
  std::vector<Tensors> values;
  for (int save = 0; save < 3; save++) {
    {
      const at::NoGradGuard no_grad;
      nn::find_tensor(*model, "large").fill_(save);
    }
    values.push_back(values_of(model));
    accelerator.projects().save_checkpoint(folder / std::to_string(save), asynchronous());
  }
  change(model);
  EXPECT_TRUE(accelerator.projects().wait_for_checkpoint(kLong));
  for (size_t save = 0; save < values.size(); save++)
    expect_saved(folder / (std::to_string(save) + "/model.safetensors"), values[save]);
  EXPECT_EQ(allocated(), held);
}

// Collects what the library logs.
class Logged {
 public:
  Logged() {
    set_log_callback([](int32_t, const char* line, void* lines) { *static_cast<std::string*>(lines) += line; }, &lines_,
                     nullptr);
  }
  ~Logged() { set_log_callback(nullptr, nullptr, nullptr); }
  size_t count(const std::string& words) const {
    size_t found = 0;
    for (size_t at = lines_.find(words); at != std::string::npos; at = lines_.find(words, at + 1)) found++;
    return found;
  }
  const std::string& lines() const { return lines_; }

 private:
  std::string lines_;
};

TEST_F(DeviceSaves, AreSynchronousWithoutMemoryForCopies) {
  Accelerator accelerator(on_device(device()));
  const nn::ModulePtr model = make_model();
  accelerator.preparation().prepare_model(model);
  const Folder folder;
  const Logged logged;
  for (const char* const name : {"given", "again"}) {
    const Tensors values = values_of(model);
    SaveOptions options = asynchronous();
    options.device_copy_bytes = std::optional<int64_t>(100 * kKiB);
    accelerator.projects().save_checkpoint(folder / name, options);
    EXPECT_FALSE(accelerator.projects().checkpoint_progress().is_busy);
    EXPECT_EQ(accelerator.projects().last_checkpoint(), folder / name);
    expect_saved(folder / (std::string(name) + "/model.safetensors"), values);
    change(model);
  }
  EXPECT_EQ(logged.count("is synchronous"), 1U) << logged.lines();
  EXPECT_EQ(logged.count("and may take 102400; see device_copy_bytes"), 1U) << logged.lines();
  if (!is_simulated()) return;
  tensor::empty_cache(device_type());
  Accelerator other(on_device(device()));
  const nn::ModulePtr same = make_model();
  other.preparation().prepare_model(same);
  const Tensors values = values_of(same);
  configure([](auto& settings) { settings.memory_bytes = allocated() + 300 * kKiB; });
  other.projects().save_checkpoint(folder / "full", asynchronous());
  EXPECT_FALSE(other.projects().checkpoint_progress().is_busy);
  expect_saved(folder / "full/model.safetensors", values);
  EXPECT_EQ(logged.count("half of what is free"), 1U) << logged.lines();
}

// The allocator keeps the memory of the last copies, which is free for the next ones.
TEST_F(DeviceSaves, FindTheMemoryOfTheLastCopies) {
  NEEDS_SIMULATION("a limit of memory");
  Accelerator accelerator(on_device(device()));
  const nn::ModulePtr model = make_model();
  accelerator.preparation().prepare_model(model);
  const Folder folder;
  const Logged logged;
  tensor::synchronize(device());
  tensor::empty_cache(device_type());
  const int64_t others = tensor::device_memory(device()).reserved;
  configure([&](auto& settings) { settings.memory_bytes = others + 1000 * kKiB; });
  for (int save = 0; save < 4; save++) {
    accelerator.projects().save_checkpoint(folder / std::to_string(save), asynchronous());
    EXPECT_TRUE(accelerator.projects().wait_for_checkpoint(kLong));
    tensor::synchronize(device());  // what is freed is free when the work before it has ended
  }
  EXPECT_EQ(logged.count("is synchronous"), 0U) << logged.lines();
}

// The system gives no page-locked memory, or the program wants none.
TEST_F(DeviceSaves, GoThroughOrdinaryMemory) {
  for (const bool limited : {false, true}) {
    if (limited && !is_simulated()) continue;
    if (limited) configure([](auto& settings) { settings.pinned_bytes = 16; });
    Accelerator accelerator(on_device(device()));
    const nn::ModulePtr model = make_model();
    accelerator.preparation().prepare_model(model);
    const Folder folder;
    const Tensors values = values_of(model);
    SaveOptions options = asynchronous();
    if (!limited) options.page_locked_bytes = 0;
    if (is_simulated()) simulation().reset_peak_pinned();
    const int64_t before = is_simulated() ? statistics().pinned_bytes : 0;
    accelerator.projects().save_checkpoint(folder / "s", options);
    change(model);
    EXPECT_TRUE(accelerator.projects().wait_for_checkpoint(kLong));
    expect_saved(folder / "s/model.safetensors", values);
    if (!is_simulated()) continue;
    EXPECT_EQ(statistics().peak_pinned_bytes, before);
  }
}

// A disk that is full after some bytes.
class FullDisk final : public checkpoint::tests::QuickFiles {
 public:
  explicit FullDisk(size_t free) : free_(free) {}
  ssize_t write(int descriptor, const void* data, size_t size) override {
    const size_t fits = std::min(size, free_);
    free_ -= fits;
    if (fits > 0) return FileSystem::write(descriptor, data, fits);
    errno = ENOSPC;
    return -1;
  }

 private:
  size_t free_;
};

TEST_F(DeviceSaves, GiveTheirMemoryBackWhenTheyFail) {
  const at::Tensor values =
      at::randn({32 << 10, 256}, device());  // two buffers of a file, so that a write fails midway
  const at::Tensor expected = values.cpu();
  const Folder folder;
  const int64_t held = allocated();
  const int64_t pinned = is_simulated() ? statistics().pinned_bytes : 0;
  BackgroundSave background;
  for (const size_t free : {size_t{0}, size_t{1} << 20, size_t{20} << 20, size_t{1} << 40}) {
    FullDisk files(free);
    SaveOptions options = asynchronous();
    options.page_locked_bytes = int64_t{4} << 20;
    auto writer = std::make_unique<checkpoint::TrainingStateWriter>(folder / "s", options, checkpoint::Ranks(), files);
    const auto collect = [&](const std::string&) {
      checkpoint::TrainingState state{
          {checkpoint::StateKind::kModel, "", checkpoint::model_state({{"a", values}}), {}}};
      EXPECT_EQ(background.copy(state), "");
      return state;
    };
    checkpoint::TrainingState state = writer->collect(collect, {});
    background.start(folder / "s", std::move(writer), std::move(state), {}, [](const checkpoint::Ranks&) {});
    EXPECT_TRUE(background.wait(kLong));
    const bool fits = free > (size_t{1} << 30);
    if (!fits)
      tests::expect_error(Status::kIo, "No space left on device", [&] { background.finish(); });
    else
      EXPECT_EQ(background.finish(), folder / "s");
    EXPECT_EQ(allocated(), held);
    EXPECT_EQ(is_simulated() ? statistics().pinned_bytes : 0, pinned);
    EXPECT_EQ(folder.entries(), fits ? 1U : 0U);
  }
  expect_saved(folder / "s/model.safetensors", {{"a", expected}});
}

// Where one rank has no memory for its copies, all write before they go on.
TEST_F(DeviceSaves, AgreeOnEveryRank) {
  const Folder folder;
  const Accelerator alone(on_device(device()));
  tests::run_ranks(
      2,
      [&](const std::shared_ptr<comm::Communicator>& communicator) {
        Accelerator accelerator(alone, communicator);
        const c10::IValue own = at::full({1000}, communicator->rank(), at::TensorOptions().device(device()));
        accelerator.checkpoints().register_for_checkpointing({"own", [&] { return own; }, [](const c10::IValue&) {}});
        for (const bool scarce : {true, false}) {
          SaveOptions options = asynchronous();
          if (scarce && communicator->rank() == 0) options.device_copy_bytes = std::optional<int64_t>(0);
          const std::string path = folder / (scarce ? "scarce" : "enough");
          accelerator.projects().save_checkpoint(path, options);
          if (scarce) {
            EXPECT_FALSE(accelerator.projects().checkpoint_progress().is_busy);
            EXPECT_EQ(accelerator.projects().last_checkpoint(), path);
          }
          EXPECT_TRUE(accelerator.projects().wait_for_checkpoint(kLong));
          EXPECT_EQ(accelerator.projects().last_checkpoint(), path);
          EXPECT_TRUE(at::equal(checkpoint::load_value(path + "/custom_own.bin").toTensor(), at::full({1000}, 0.0)));
        }
      },
      std::chrono::seconds(60), backends());
}

TEST_F(DeviceSaves, ReadThroughTheRing) {
  for (const size_t bytes : {size_t{0}, size_t{4096}, size_t{8192}, size_t{1} << 20}) {
    const tensor::HostRing ring(bytes);
    for (const int64_t elements : {0, 1, 1023, 1024, 1025, 2048, 5000}) {
      const at::Tensor numbers = at::randn({elements + 2});
      const at::Tensor there = numbers.to(device()).narrow(0, 2, elements);
      size_t parts = 0;
      std::string read;
      tensor::read_on_host(there, [&](const char* data, size_t size) {
        read.append(data, size);
        parts++;
      });
      EXPECT_EQ(read, std::string(static_cast<const char*>(numbers.const_data_ptr()) + 8, read.size()));
      EXPECT_EQ(read.size(), there.nbytes());
      EXPECT_TRUE(bytes != 8192 || parts == (there.nbytes() + 4095) / 4096) << parts;
    }
    const at::Tensor matrix = at::randn({40, 90});
    EXPECT_TRUE(at::equal(tensor::on_host(matrix.to(device()).t()), matrix.t()));
    EXPECT_TRUE(at::equal(tensor::on_host(matrix.to(device()).narrow(1, 3, 50)), matrix.narrow(1, 3, 50)));
  }
}

// What goes wrong while the host takes a chunk ends the read when no copy is under way any more.
TEST_F(DeviceSaves, EndAReadThatFails) {
  const at::Tensor there = at::randn({1 << 16}).to(device());
  const tensor::HostRing ring(8192);
  for (int round = 0; round < 20; round++)
    tests::expect_error(Status::kIo, "full", [&] {
      size_t parts = 0;
      tensor::read_on_host(there, [&](const char*, size_t) { require(++parts < 3, Status::kIo, "the disk is full"); });
    });
  EXPECT_EQ(is_simulated() ? statistics().pending_tasks : 0, 0);
  std::string read;
  tensor::read_on_host(there, [&](const char* data, size_t size) { read.append(data, size); });
  EXPECT_EQ(read, std::string(static_cast<const char*>(there.cpu().const_data_ptr()), there.nbytes()));
}

}  // namespace device_saves_test
}  // namespace accel::accelerator
