// SPDX-License-Identifier: Apache-2.0
// Asynchronous saves: what is saved is what was there when the call returned, whatever the training does meanwhile.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "checkpoint/background_writer.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/checkpoint/project.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace background_save_test {

using checkpoint::BackgroundWriter;
using checkpoint::tests::Folder;
using std::chrono::milliseconds;
using tests::expect_error;

checkpoint::SaveOptions asynchronous(WhenBusy when_busy = WhenBusy::kWait) {
  checkpoint::SaveOptions options;
  options.asynchronous = true;
  options.when_busy = when_busy;
  return options;
}
constexpr milliseconds kLong(30000);

nn::ModulePtr model_of(int64_t elements) {
  auto model = std::make_shared<nn::CallbackModule>("Numbers");
  model->add_parameter("numbers", at::zeros({elements}));
  return model;
}

void fill(const nn::ModulePtr& model, double number) {
  const at::NoGradGuard no_grad;
  nn::find_tensor(*model, "numbers").fill_(number);
}

double number_in(const tests::AcceleratorPtr& accelerator, const nn::ModulePtr& model, const std::string& folder) {
  accelerator->projects().load_checkpoint(folder, {});
  const at::Tensor numbers = nn::find_tensor(*model, "numbers").detach();
  EXPECT_EQ(numbers.min().item<float>(), numbers.max().item<float>());
  return numbers[0].item<double>();
}

TEST(BackgroundSave, HasWhatWasThereWhenTheCallReturned) {
  for (const int ranks : {1, 2, 3}) {
    const Folder folder;
    tests::run_accelerators(ranks, {}, [&](const tests::AcceleratorPtr& accelerator) {
      const nn::ModulePtr model = model_of(1 << 20);
      accelerator->preparation().prepare_model(model);
      for (int save = 1; save <= 3; save++) {
        fill(model, save);
        accelerator->projects().save_checkpoint(folder / std::to_string(save), asynchronous());
        for (int step = 0; step < 5; step++) fill(model, -step);
      }
      EXPECT_TRUE(accelerator->projects().wait_for_checkpoint(kLong));
      EXPECT_FALSE(accelerator->projects().checkpoint_progress().is_busy);
      EXPECT_EQ(accelerator->projects().last_checkpoint(), folder / "3");
      for (int save = 1; save <= 3; save++)
        EXPECT_EQ(number_in(accelerator, model, folder / std::to_string(save)), save);
    });
    EXPECT_EQ(folder.entries(), 3U);
  }
}

TEST(BackgroundSave, TheTrainingCommunicatesMeanwhile) {
  const Folder folder;
  tests::run_accelerators(2, {}, [&](const tests::AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = model_of(1 << 20);
    accelerator->preparation().prepare_model(model);
    fill(model, 7);
    accelerator->projects().save_checkpoint(folder / "s", asynchronous());
    for (int round = 0; round < 200; round++) accelerator->state().communicator()->barrier();
    EXPECT_EQ(number_in(accelerator, model, folder / "s"), 7);  // waits for it
  });
}

TEST(BackgroundSave, ASecondOneWaitsOrIsRefused) {
  const Folder folder;
  tests::run_accelerators(1, {}, [&](const tests::AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = model_of(8 << 20);
    accelerator->preparation().prepare_model(model);
    fill(model, 1);
    accelerator->projects().save_checkpoint(folder / "a", asynchronous());
    const auto progress = accelerator->projects().checkpoint_progress();
    if (progress.is_busy) {
      EXPECT_GE(progress.total, 32 << 20);
      expect_error(Status::kInvalidState, "/a' is under way",
                   [&] { accelerator->projects().save_checkpoint(folder / "b", asynchronous(WhenBusy::kRefuse)); });
    }
    fill(model, 2);
    accelerator->projects().save_checkpoint(folder / "b", {});  // waits
    EXPECT_EQ(number_in(accelerator, model, folder / "a"), 1);
    EXPECT_EQ(number_in(accelerator, model, folder / "b"), 2);
  });
}

TEST(BackgroundSave, RotationComesBehindIt) {
  const Folder folder;
  tests::run_accelerators(2, {}, [&](const tests::AcceleratorPtr& accelerator) {
    ProjectSettings project;
    project.project_dir = folder / "project";
    project.automatic_checkpoint_naming = true;
    project.total_limit = 2;
    accelerator->projects().project().set(project);
    const nn::ModulePtr model = model_of(1000);
    accelerator->preparation().prepare_model(model);
    for (int save = 0; save < 4; save++) {
      fill(model, save);
      accelerator->projects().save_checkpoint(std::nullopt, asynchronous());
    }
    EXPECT_TRUE(accelerator->projects().wait_for_checkpoint(kLong));
    accelerator->state().communicator()->barrier();
    accelerator->projects().load_checkpoint(std::nullopt, {});
    EXPECT_EQ(nn::find_tensor(*model, "numbers")[0].item<double>(), 3);
    EXPECT_EQ(accelerator->projects().project().settings().iteration.value, 4);
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "project/checkpoints/checkpoint_1"));
  EXPECT_TRUE(std::filesystem::exists(folder / "project/checkpoints/checkpoint_2"));
}

TEST(BackgroundSave, TheEndOfTheAcceleratorFinishesIt) {
  const Folder folder;
  tests::run_accelerators(2, {}, [&](const tests::AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = model_of(4 << 20);
    accelerator->preparation().prepare_model(model);
    fill(model, 5);
    accelerator->projects().save_checkpoint(folder / "s", asynchronous());
  });
  EXPECT_EQ(checkpoint::load_manifest(folder / "s").world_size, 2);
  EXPECT_EQ(folder.entries(), 1U);
}

// Work that waits for permission to end.
class Gate {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kLong, [this] { return is_open_; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

TEST(BackgroundSave, ItsErrorIsThrownOnce) {
  BackgroundWriter writer;
  Gate gate;
  writer.start("the asynchronous save of 'x'", [&] {
    gate.pass();
    fail(Status::kIo, "the disk is full");
  });
  EXPECT_TRUE(writer.is_busy());
  EXPECT_FALSE(writer.wait(milliseconds(1)));
  EXPECT_NO_THROW(writer.throw_error());
  gate.open();
  EXPECT_TRUE(writer.wait(kLong));
  expect_error(Status::kIo, "the asynchronous save of 'x' failed: the disk is full", [&] { writer.throw_error(); });
  EXPECT_NO_THROW(writer.throw_error());
  std::atomic<int> done{0};
  writer.start("another", [&] { done = 1; });
  EXPECT_TRUE(writer.wait(std::nullopt));
  EXPECT_EQ(done, 1);
}

// In a process of its own, of which every step is the last one.
int status_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(9);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(BackgroundSave, TheEndOfTheProcessFinishesIt) {
  const Folder folder;
  const auto save = [&](const std::string& name) {
    auto* const writer = new BackgroundWriter;  // which nobody deletes
    writer->start("save", [path = folder / name] {
      std::this_thread::sleep_for(milliseconds(50));
      checkpoint::tests::save_training_state(path, checkpoint::tests::example(0, 4), {});
    });
  };
  status_of([&] {
    save("finished");
    ::exit(0);
  });
  EXPECT_EQ(checkpoint::tests::number_of(folder / "finished"), 4);
  status_of([&] {
    save("abandoned");
    ::_exit(0);
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "abandoned"));
  checkpoint::tests::save_training_state(folder / "abandoned", checkpoint::tests::example(0, 5), {});
  EXPECT_EQ(folder.entries(), 2U);
}

// Each rank copies those of the states of all ranks that it will write.
TEST(BackgroundSave, CopiesWhatTheRankWrites) {
  const Folder folder;
  checkpoint::tests::on_ranks(2, [&](const checkpoint::Ranks& ranks) {
    checkpoint::TrainingStateWriter writer(folder / "s", {}, ranks);
    checkpoint::TrainingState state = writer.collect(
        [&](const std::string&) {
          checkpoint::TrainingState given = checkpoint::tests::example(ranks.rank, 3);
          for (checkpoint::StateEntry& entry : given)
            entry.is_equal_on_all_ranks = entry.kind == checkpoint::StateKind::kModel;
          return given;
        },
        ranks);
    writer.drop_others(state);
    int models = 0, own = 0;
    for (const checkpoint::StateEntry& entry : state)
      (is_per_rank(entry.kind) ? own : models) += entry.state.isNone() ? 0 : 1;
    EXPECT_EQ(models, ranks.rank == 0 ? 4 : 1);  // one of two models, and what the first rank writes for all
    EXPECT_EQ(own, 4);
    writer.write(state, ranks);
  });
  EXPECT_EQ(checkpoint::load_manifest(folder / "s").world_size, 2);
  for (const char* const name : {"model.safetensors", "model_1.safetensors", "optimizer.bin"})
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string("s/") + name))) << name;
}

TEST(BackgroundSave, ASnapshotKeepsTiesViewsAndChunks) {
  checkpoint::SnapshotMemory memory;
  const at::Tensor base = at::arange(12, at::kFloat).view({3, 4});
  const auto chunk =
      tensor::chunk_value(base.narrow(0, 1, 2), tensor::box_placement({9, 4}, {{3, 0}, {2, 4}}, "shard"));
  const c10::IValue tree = checkpoint::tests::map_of({{"a", base},
                                                      {"tied", base},
                                                      {"row", base[1]},
                                                      {"transposed", base.t()},
                                                      {"chunk", chunk},
                                                      {"none", {}},
                                                      {"n", 3}});
  for (int round = 0; round < 3; round++) {
    base.copy_(at::arange(12, at::kFloat).view({3, 4}));
    const checkpoint::Snapshot snapshot = memory.take({tree});
    base.zero_();
    const auto copy = snapshot.values[0].toGenericDict();
    EXPECT_EQ(copy.at("a").toTensor().sum().item<float>(), 66);
    EXPECT_TRUE(copy.at("a").toTensor().is_alias_of(copy.at("tied").toTensor()));
    EXPECT_EQ(copy.at("row").toTensor().sum().item<float>(), 4 + 5 + 6 + 7);
    EXPECT_EQ(copy.at("transposed").toTensor()[3][2].item<float>(), 11);
    EXPECT_EQ(copy.at("n").toInt(), 3);
    const tensor::TensorChunk* const copied = tensor::chunk_of(copy.at("chunk"));
    ASSERT_NE(copied, nullptr);
    EXPECT_EQ(copied->placement->boxes.front().whole.offset, std::vector<int64_t>({3, 0}));
    EXPECT_EQ(copied->data.sum().item<float>(), 60);
  }
}

}  // namespace background_save_test
}  // namespace accel::accelerator
