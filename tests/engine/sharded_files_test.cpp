// SPDX-License-Identifier: Apache-2.0
// The files of FSDP: what any ranks write, any others load, and training continues as if it had not stopped.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator_ranks.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/optimizer_names.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/settings/checkpoint/fsdp_file.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "os/mapped_file.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace sharded_files_test {

namespace fs = std::filesystem;
using accel::tests::AcceleratorPtr;
using accel::tests::expect_error;
using checkpoint::tests::Folder;
using parallel::fsdp_fixture::Shape;

struct Training {
  std::shared_ptr<nn::CallbackModule> inner;
  nn::ModulePtr model;
  std::shared_ptr<optim::Optimizer> optimizer;
};

Training prepare(const AcceleratorPtr& accelerator, bool sharded, const Shape& shape = {}) {
  Training run;
  run.inner = parallel::fsdp_fixture::make_model(shape);
  PrepareModelSettings settings;
  settings.fsdp = parallel::fsdp_fixture::by_blocks();
  settings.fsdp.enabled = sharded;
  run.model = accelerator->preparation().prepare_model(run.inner, settings);
  auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.05}});
  std::vector<at::Tensor> matrices, others;
  for (const auto& [name, parameter] : nn::named_parameters(*run.inner))
    (name.find("bias") == std::string::npos ? matrices : others).push_back(parameter);
  optimizer->add_group(matrices, std::nullopt, std::nullopt);
  optimizer->add_group(others, std::nullopt, std::nullopt);
  run.optimizer = accelerator->preparation().prepare_optimizer(optimizer);
  return run;
}

// All ranks have the same rows, so that their number does not matter.
double train(const AcceleratorPtr& accelerator, Training& run, int step) {
  const at::Tensor rows = parallel::fsdp_fixture::rows_of_step(step);
  const at::Tensor loss = run.model->call(nn::Inputs{rows}).toTensor().pow(2).mean();
  accelerator->backward().run(loss);
  run.optimizer->step();
  run.optimizer->zero_grad(true);
  return loss.item<double>();
}

FsdpFileSettings in(StateDictType type, int64_t index = 0, bool use_dcp = true) {
  FsdpFileSettings settings;
  settings.state_dict_type.value = type;
  settings.index.value = index;
  settings.use_dcp.value = use_dcp;
  return settings;
}

constexpr int kStepsBefore = 2, kSteps = 4;

// The losses after the save.
std::vector<double> save(const std::string& folder, int ranks, bool sharded, const FsdpFileSettings& settings,
                         const Shape& shape = {}) {
  std::vector<double> losses;
  tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
    Training run = prepare(accelerator, sharded, shape);
    for (int step = 0; step < kStepsBefore; step++) train(accelerator, run, step);
    accelerator->files().save_fsdp_model(run.model, folder, settings);
    accelerator->files().save_fsdp_optimizer(run.optimizer, folder, settings);
    for (int step = kStepsBefore; step < kSteps; step++) {
      const double loss = train(accelerator, run, step);
      if (accelerator->state().is_main_process()) losses.push_back(loss);
    }
  });
  return losses;
}

void expect_continued(const std::string& folder, int ranks, bool sharded, const FsdpFileSettings& settings,
                      const std::vector<double>& losses, const Shape& shape = {}) {
  tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
    SCOPED_TRACE(text("loaded by ", ranks, " ranks, ", sharded ? "sharded" : "whole"));  // of this thread
    Training run = prepare(accelerator, sharded, shape);
    train(accelerator, run, 9);  // another history
    accelerator->files().load_fsdp_model(run.model, folder, settings);
    accelerator->files().load_fsdp_optimizer(run.optimizer, folder, settings);
    for (int step = kStepsBefore; step < kSteps; step++)
      EXPECT_NEAR(train(accelerator, run, step), losses[static_cast<size_t>(step - kStepsBefore)], 1e-5);
  });
}

TEST(ShardedFiles, LoadOnAnyNumberOfRanks) {
  for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict})
    for (const auto& [ranks, sharded] : {std::pair(1, false), std::pair(2, true), std::pair(3, true)}) {
      const Folder folder;
      SCOPED_TRACE(text("saved by ", ranks, " ranks"));
      const std::vector<double> losses = save(folder / "deep/run", ranks, sharded, in(type));
      expect_continued(folder / "deep/run", 1, false, in(type), losses);
      expect_continued(folder / "deep/run", 2, true, in(type), losses);
      expect_continued(folder / "deep/run", 3, true, in(type), losses);
      expect_continued(folder / "deep/run", 2, false, in(type), losses);
    }
}

TEST(ShardedFiles, OfRanksLoadOnTheSameRanks) {
  for (const FsdpFileSettings& settings :
       {in(StateDictType::kLocalStateDict), in(StateDictType::kShardedStateDict, 0, false)})
    for (const int ranks : {1, 3}) {
      const Folder folder;
      save(folder / "run", 4, true, settings);  // whose files go
      const std::vector<double> losses = save(folder / "run", ranks, true, settings);
      expect_continued(folder / "run", ranks, true, settings, losses);
    }
}

TEST(ShardedFiles, HaveAllKindsOfParameters) {
  for (const Shape& shape : {Shape{true, false, false, false}, Shape{false, true, false, false},
                             Shape{false, false, true, false}, Shape{false, false, false, true}}) {
    const Folder folder;
    const FsdpFileSettings settings = in(StateDictType::kShardedStateDict);
    const std::vector<double> losses = save(folder / "run", 3, true, settings, shape);
    expect_continued(folder / "run", 2, true, settings, losses, shape);
    expect_continued(folder / "run", 1, false, settings, losses, shape);
  }
}

// Names of files and folders, and what the ranks decide where nothing is given.
TEST(ShardedFiles, HaveTheNamesOfTheReference) {
  const auto names_of = [](const FsdpFileSettings& settings, bool sharded, StateDictType of_model) {
    const Folder folder;
    tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings prepared;
      prepared.fsdp.enabled = sharded;
      prepared.fsdp.state_dict_type.value = of_model;
      const auto inner = parallel::fsdp_fixture::make_model();
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, prepared);
      auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.05}});
      optimizer->add_group(inner->parameters(), std::nullopt, std::nullopt);
      accelerator->files().save_fsdp_model(model, folder / "run", settings);
      accelerator->files().save_fsdp_optimizer(accelerator->preparation().prepare_optimizer(optimizer), folder / "run",
                                               settings);
    });
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "run"))
      names.push_back(entry.path().lexically_relative(folder / "run").string());
    std::sort(names.begin(), names.end());
    return names;
  };
  using Names = std::vector<std::string>;
  const StateDictType full = StateDictType::kFullStateDict, parts = StateDictType::kShardedStateDict;
  EXPECT_EQ(names_of({}, false, full), (Names{"optimizer.bin", "pytorch_model_fsdp.bin"}));
  EXPECT_EQ(names_of(in(full, 2), true, parts), (Names{"optimizer_2.bin", "pytorch_model_fsdp_2.bin"}));
  EXPECT_EQ(names_of({}, true, parts),
            (Names{"optimizer_0", "optimizer_0/.metadata", "optimizer_0/__0_0.distcp", "pytorch_model_fsdp_0",
                   "pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp",
                   "pytorch_model_fsdp_0/__1_0.distcp"}));  // before a step the optimizer has settings alone
  EXPECT_EQ(names_of(in(StateDictType::kLocalStateDict), true, full),
            (Names{"optimizer_0", "optimizer_0/.metadata", "optimizer_0/__0_0.distcp", "pytorch_model_fsdp_rank0.bin",
                   "pytorch_model_fsdp_rank1.bin"}));
  EXPECT_EQ(names_of(in(parts, 1, false), true, full),
            (Names{"optimizer_1_rank0.bin", "optimizer_1_rank1.bin", "pytorch_model_fsdp_1_rank0.bin",
                   "pytorch_model_fsdp_1_rank1.bin"}));
}

TEST(ShardedFiles, ListWholeTensorsByTheirNames) {
  const Folder folder;
  save(folder / "run", 2, true, in(StateDictType::kShardedStateDict));
  checkpoint::NamedTensors tensors = checkpoint::read_distributed_checkpoint(folder / "run/pytorch_model_fsdp_0");
  ASSERT_EQ(tensors.size(), 8);
  EXPECT_EQ(tensors.front().first, "first");
  const c10::IValue state = checkpoint::read_distributed_state(folder / "run/optimizer_0", "optimizer");
  EXPECT_TRUE(checkpoint::is_by_names(state));
  const c10::IValue& group = state.toGenericDict().at("param_groups").toListRef()[1];
  EXPECT_EQ(group.toGenericDict().at("params").toListRef()[0].toStringRef(), "block0.bias");
  EXPECT_EQ(group.toGenericDict().at("lr").toDouble(), 0.05);
}

// A save replaces what a save wrote, and nothing else; a load that fails on one rank changes nothing on any.
TEST(ShardedFiles, NothingIsLostByAMistake) {
  const Folder folder;
  const FsdpFileSettings settings = in(StateDictType::kShardedStateDict);
  save(folder / "run", 3, true, settings);
  const std::vector<double> losses = save(folder / "run", 2, true, settings);
  expect_continued(folder / "run", 2, true, settings, losses);
  EXPECT_FALSE(fs::exists(folder / "run/pytorch_model_fsdp_0/__2_0.distcp"));

  checkpoint::tests::write_text(folder / "run/pytorch_model_fsdp_0/notes.txt", "mine");
  expect_error(Status::kAlreadyExists, "holds 'notes.txt'", [&] { save(folder / "run", 2, true, settings); });
  EXPECT_TRUE(fs::exists(folder / "run/pytorch_model_fsdp_0/__1_0.distcp"));

  const auto load = [&](const std::function<void(const std::string&)>& change) {
    const Folder copy;
    fs::copy(folder / "run", copy / "run", fs::copy_options::recursive);
    change(copy / "run");
    tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
      Training run = prepare(accelerator, true);
      train(accelerator, run, 0);
      const at::Tensor before = run.inner->parameter(0).detach().clone();
      try {
        accelerator->files().load_fsdp_model(run.model, copy / "run", settings);
        accelerator->files().load_fsdp_optimizer(run.optimizer, copy / "run", settings);
      } catch (...) {
        EXPECT_TRUE(before.equal(run.inner->parameter(0)));
        throw;
      }
    });
  };
  load([](const std::string&) {});
  expect_error(Status::kNotFound, "pytorch_model_fsdp_0' does not exist",
               [&] { load([](const std::string& run) { fs::remove_all(run + "/pytorch_model_fsdp_0"); }); });
  expect_error(Status::kCorrupt, "__1_0.distcp", [&] {
    load([](const std::string& run) { fs::resize_file(run + "/pytorch_model_fsdp_0/__1_0.distcp", 3000); });
  });
  expect_error(Status::kNotFound, "__1_0.distcp",
               [&] { load([](const std::string& run) { fs::remove(run + "/pytorch_model_fsdp_0/__1_0.distcp"); }); });
}

std::shared_ptr<nn::CallbackModule> with_parameter(const std::string& name, std::vector<int64_t> shape) {
  auto module = std::make_shared<nn::CallbackModule>("One");
  module->add_parameter(name, at::full(shape, 0.5), true);
  module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    return inputs[0].toTensor().sum() * self.parameter(0).sum();
  });
  return module;
}

std::shared_ptr<optim::Optimizer> adamw_of(const AcceleratorPtr& accelerator, std::vector<at::Tensor> parameters) {
  auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.05}});
  optimizer->add_group(std::move(parameters), std::nullopt, std::nullopt);
  return accelerator->preparation().prepare_optimizer(optimizer);
}

PrepareModelSettings sharded_settings() {
  PrepareModelSettings settings;
  settings.fsdp.enabled = true;
  return settings;
}

TEST(ShardedFiles, TensorsWithoutElementsHaveTheirNames) {
  for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict}) {
    const Folder folder;
    tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
      const nn::ModulePtr model =
          accelerator->preparation().prepare_model(with_parameter("empty", {0, 4}), sharded_settings());
      accelerator->files().save_fsdp_model(model, folder / "run", in(type));
      accelerator->files().load_fsdp_model(model, folder / "run", in(type));
    });
  }
}

// Two models may have parameters of one name, which a file by names cannot tell apart.
TEST(ShardedFiles, RefusesNamesThatTwoModelsHave) {
  const Folder folder;
  tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
    const auto one = with_parameter("weight", {4, 2}), other = with_parameter("weight", {3, 2});
    accelerator->preparation().prepare_model(one, sharded_settings());
    accelerator->preparation().prepare_model(other, sharded_settings());
    const auto optimizer = adamw_of(accelerator, {one->parameter(0), other->parameter(0)});
    expect_error(Status::kInvalidState, "two parameters of the optimizer are called 'weight'", [&] {
      accelerator->files().save_fsdp_optimizer(optimizer, folder / "run", in(StateDictType::kFullStateDict));
    });
  });
}

TEST(ShardedFiles, AllRanksNameTheSameFile) {
  const Folder folder;
  tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model =
        accelerator->preparation().prepare_model(with_parameter("weight", {4, 2}), sharded_settings());
    const int rank = accelerator->state().process_index();
    for (const char* const other : {"/run", "/other"})
      expect_error(Status::kInvalidArgument, "expected the same folder, state_dict_type, index and use_dcp", [&] {
        accelerator->files().save_fsdp_model(
            model, folder / (rank == 0 ? "run" : other + 1),
            in(StateDictType::kShardedStateDict, std::string(other) == "/run" ? rank : 0));
      });
    expect_error(Status::kInvalidArgument, "folder is empty",
                 [&] { accelerator->files().load_fsdp_model(model, "", in(StateDictType::kFullStateDict)); });
    // The error of one rank, before it would meet the others, is that of all.
    const nn::ModulePtr unprepared = with_parameter("weight", {4, 2});
    expect_error(Status::kInvalidArgument, "rank 1: the model is not prepared", [&] {
      accelerator->files().save_fsdp_model(rank == 0 ? model : unprepared, folder / "run",
                                           in(StateDictType::kFullStateDict));
    });
  });
  EXPECT_FALSE(fs::exists(folder / "run"));
}

// Rank 0 has as many rows of the other model, rank 1 has not.
TEST(ShardedFiles, RowsOfAnotherModelChangeNothingOnAnyRank) {
  const Folder folder;
  const FsdpFileSettings settings = in(StateDictType::kShardedStateDict, 0, false);
  const auto train = [](const AcceleratorPtr& accelerator, const nn::ModulePtr& model,
                        const std::shared_ptr<optim::Optimizer>& optimizer) {
    accelerator->backward().run(model->call(nn::Inputs{at::ones({2})}).toTensor());
    optimizer->step();
  };
  for (const int64_t rows : {8, 7})
    tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
      const auto inner = with_parameter("weight", {rows, 2});
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, sharded_settings());
      const auto optimizer = adamw_of(accelerator, {inner->parameter(0)});
      train(accelerator, model, optimizer);
      if (rows == 8) return accelerator->files().save_fsdp_optimizer(optimizer, folder / "run", settings);
      train(accelerator, model, optimizer);
      const c10::IValue before =
          tree::map_tensors(optimizer->state_dict(), [](const at::Tensor& one) { return one.clone(); });
      expect_error(Status::kShapeMismatch, "rank 1: '0.exp_avg' has the shape [4, 2]; expected [3, 2]",
                   [&] { accelerator->files().load_fsdp_optimizer(optimizer, folder / "run", settings); });
      EXPECT_TRUE(tree::equal(optimizer->state_dict(), before));
    });
}

TEST(ShardedFiles, StatesThatNoGroupListsAreNoSilentLack) {
  const Folder folder;
  const FsdpFileSettings settings = in(StateDictType::kFullStateDict);
  tests::run_accelerators(1, {}, [&](const AcceleratorPtr& accelerator) {
    const auto inner = with_parameter("weight", {4, 2});
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto optimizer = adamw_of(accelerator, {inner->parameter(0)});
    accelerator->backward().run(model->call(nn::Inputs{at::ones({2})}).toTensor());
    optimizer->step();
    accelerator->files().save_fsdp_optimizer(optimizer, folder / "run", settings);
    const std::string path = folder / "run/optimizer.bin";
    const auto saved = checkpoint::read_torch_file(std::make_shared<const MappedFile>(path)).toGenericDict().copy();
    const auto renamed = [&](const char* from, const char* to, const c10::impl::GenericDict& map) {
      auto changed = tree::new_map();
      for (const auto& member : map)
        changed.insert(member.key().toStringRef() == from ? to : member.key(), member.value());
      return changed;
    };
    auto other = saved.copy();
    other.insert_or_assign("state", renamed("weight", "wieght", saved.at("state").toGenericDict()));
    checkpoint::save_torch_file(path, other);
    expect_error(Status::kInvalidState, "has a state of 'wieght', which is in no group",
                 [&] { accelerator->files().load_fsdp_optimizer(optimizer, folder / "run", settings); });
    checkpoint::save_torch_file(path, renamed("state", "staet", saved));
    expect_error(Status::kCorrupt, "has no 'state' beside the groups",
                 [&] { accelerator->files().load_fsdp_optimizer(optimizer, folder / "run", settings); });
  });
}

TEST(ShardedFiles, RefusesOtherObjects) {
  const Folder folder;
  const FsdpFileSettings parts = in(StateDictType::kShardedStateDict), of_ranks = in(StateDictType::kLocalStateDict),
                         without_dcp = in(StateDictType::kShardedStateDict, 0, false);
  save(folder / "run", 2, true, parts);
  save(folder / "run", 2, true, of_ranks);
  save(folder / "run", 2, true, without_dcp);
  tests::run_accelerators(3, {}, [&](const AcceleratorPtr& accelerator) {
    Training run = prepare(accelerator, true);
    expect_error(Status::kShapeMismatch, "pytorch_model_fsdp_rank0.bin",
                 [&] { accelerator->files().load_fsdp_model(run.model, folder / "run", of_ranks); });
    expect_error(Status::kShapeMismatch, "rank 0: '0.exp_avg' has the shape [4, 5]; expected [3, 5]",
                 [&] { accelerator->files().load_fsdp_optimizer(run.optimizer, folder / "run", without_dcp); });
    const auto other = std::make_shared<nn::CallbackModule>("Other");
    expect_error(Status::kInvalidArgument, "not prepared",
                 [&] { accelerator->files().save_fsdp_model(other, folder / "run", parts); });
    other->add_parameter("first", at::zeros({7, 5}), true);
    expect_error(Status::kInvalidState, "which the model lacks", [&] {
      accelerator->files().load_fsdp_model(accelerator->preparation().prepare_model(other), folder / "run", parts);
    });
  });
  tests::run_accelerators(1, {}, [&](const AcceleratorPtr& accelerator) {
    Training run = prepare(accelerator, false);
    expect_error(Status::kInvalidState, "pytorch_model_fsdp_rank1.bin', so that the files are of more ranks than 1",
                 [&] { accelerator->files().load_fsdp_model(run.model, folder / "run", of_ranks); });
    expect_error(Status::kInvalidState, "optimizer_0_rank1.bin', so that the files are of more ranks than 1",
                 [&] { accelerator->files().load_fsdp_optimizer(run.optimizer, folder / "run", without_dcp); });
    auto stray = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.05}});
    stray->add_group({at::zeros({3}).requires_grad_(true)}, std::nullopt, std::nullopt);
    expect_error(Status::kInvalidState, "of no prepared model", [&] {
      accelerator->files().save_fsdp_optimizer(accelerator->preparation().prepare_optimizer(stray), folder / "run",
                                               parts);
    });
    expect_error(Status::kInvalidState, "groups of parameters", [&] {
      accelerator->files().load_fsdp_optimizer(accelerator->prepared().optimizers.back(), folder / "run", parts);
    });
  });
}

}  // namespace sharded_files_test
}  // namespace accel::accelerator
