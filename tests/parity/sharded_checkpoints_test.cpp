// SPDX-License-Identifier: Apache-2.0
// Checkpoints that Accelerate wrote of sharded models, under FSDP and DeepSpeed: they load on any number of ranks,
// sharded or not, and training continues as Accelerate's does.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "fixture.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace sharded_checkpoints_test {

namespace fs = std::filesystem;

at::Tensor numbers(const c10::IValue& list) {
  std::vector<double> found;
  for (const c10::IValue& item : list.toListRef()) found.push_back(item.toScalar().toDouble());
  return at::tensor(found, at::kFloat);
}

// A copy of a case's folder, with the random states that all cases share.
class CaseFolder {
 public:
  explicit CaseFolder(const std::string& name) {
    std::string path = (fs::temp_directory_path() / "accel-sharded-XXXXXX").string();
    path_ = ::mkdtemp(path.data());
    const fs::path all = fs::path(fixture_folder()) / "sharded_checkpoints";
    fs::copy(all / name, path_, fs::copy_options::recursive);
    for (const char* const file : {"random_states_0.pkl", "random_states_1.pkl"})
      fs::copy_file(all / file, fs::path(path_) / file);
  }
  CaseFolder(const CaseFolder&) = delete;
  CaseFolder& operator=(const CaseFolder&) = delete;
  ~CaseFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::shared_ptr<nn::CallbackModule> make_block() {
  auto block = std::make_shared<nn::CallbackModule>("Block");
  const auto first = std::make_shared<nn::Linear>(5, 7, true), second = std::make_shared<nn::Linear>(7, 5, true);
  block->add_child("first", first);
  block->add_child("second", second);
  block->set_forward([first, second](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor& x = inputs[0].toTensor();
    return x + second->call(nn::Inputs{at::tanh(first->call(inputs).toTensor())}).toTensor();
  });
  return block;
}

std::shared_ptr<nn::CallbackModule> make_net() {
  auto net = std::make_shared<nn::CallbackModule>("Net");
  const auto blocks = std::make_shared<nn::CallbackModule>("ModuleList");
  for (const char* const number : {"0", "1"}) blocks->add_child(number, make_block());
  net->add_child("blocks", blocks);
  net->add_parameter("shift", at::full({5}, 7.0), false);
  net->add_buffer("scale", at::full({5}, 7.0), true);
  net->set_forward([blocks](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor() * nn::find_tensor(self, "scale") + nn::find_tensor(self, "shift");
    for (const auto& [name, block] : blocks->children()) x = block->call(x);
    return x;
  });
  return net;
}

bool is_weight(const std::string& name) { return name.size() > 6 && name.substr(name.size() - 6) == "weight"; }

// AdamW over all weights, then all others with another rate; or over all in one group. The one that is frozen is a
// member where Accelerate has it.
std::shared_ptr<optim::Optimizer> make_adamw(const nn::ModulePtr& net, int64_t groups, bool with_frozen) {
  std::vector<at::Tensor> weights, others;
  for (const auto& [name, parameter] : nn::named_parameters(*net))
    if (parameter.requires_grad() || with_frozen)
      (groups == 1 || is_weight(name) ? weights : others).push_back(parameter);
  auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.5}});
  optimizer->add_group(weights, std::nullopt, std::nullopt);
  if (!others.empty()) optimizer->add_group(others, std::nullopt, std::nullopt);
  return optimizer;
}

struct Run {
  std::vector<std::shared_ptr<nn::CallbackModule>> inner;
  std::vector<nn::ModulePtr> models;
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers;
};

Run prepare(const tests::AcceleratorPtr& accelerator, const c10::IValue& input, bool sharded) {
  Run run;
  const bool with_frozen = optional_member(input, "fsdp_version").value_or(int64_t{0}).toInt() == 2;
  for (int64_t i = 0; i < member(input, "models").toInt(); i++) {
    run.inner.push_back(make_net());
    if (optional_member(input, "trains_shift")) nn::find_tensor(*run.inner.back(), "shift").set_requires_grad(true);
    PrepareModelSettings settings;
    settings.fsdp.enabled = sharded;
    if (sharded) {
      settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
      settings.fsdp.transformer_cls_names_to_wrap = std::string("Block");
    }
    run.models.push_back(accelerator->preparation().prepare_model(run.inner.back(), settings));
    const auto plain = make_adamw(run.inner.back(), member(input, "groups").toInt(), with_frozen);
    run.optimizers.push_back(accelerator->preparation().prepare_optimizer(plain));
    accelerator->preparation().prepare_scheduler(
        std::make_shared<optim::LrScheduler>(plain, optim::step_schedule(2, 0.5)));
  }
  return run;
}

// Of Accelerate and of this rank; one that is sharded is gathered.
void expect_values(const tests::AcceleratorPtr& accelerator, const nn::ModulePtr& model, const c10::IValue& values,
                   double tolerance) {
  const auto expected = values.toGenericDict();
  const nn::NamedTensors found = accelerator->files().whole_state_dict(model, true, "");
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : found) {
    const at::Tensor value = numbers(expected.at(name));
    EXPECT_TRUE(at::allclose(tensor.detach().reshape({-1}), value, tolerance, tolerance)) << name << "\n"
                                                                                          << tensor << "\n"
                                                                                          << value;
  }
}

void expect_moments(const Run& run, size_t index, const c10::IValue& moments) {
  const auto state = run.optimizers[index]->state_dict().toGenericDict();
  const auto states = state.at("state").toGenericDict();
  const auto expected = moments.toGenericDict();
  size_t compared = 0;
  int64_t number = 0;
  for (const optim::ParameterGroup& group : run.optimizers[index]->groups())
    for (const at::Tensor& parameter : group.parameters) {
      const c10::IValue key(number++);
      if (!states.contains(key)) continue;
      for (const auto& [name, tensor] : nn::named_parameters(*run.inner[index])) {
        if (!tensor.is_same(parameter)) continue;
        const auto own = states.at(key).toGenericDict();
        EXPECT_EQ(own.at("step").toTensor().item<double>(), 3) << name;
        for (const char* const moment : {"exp_avg", "exp_avg_sq"})
          EXPECT_TRUE(at::allclose(own.at(moment).toTensor().reshape({-1}), numbers(member(expected.at(name), moment)),
                                   1e-4, 1e-8))
              << name << " " << moment;
        compared++;
      }
    }
  EXPECT_EQ(compared, expected.size());
}

at::Tensor rows_of(const c10::IValue& list) {
  std::vector<at::Tensor> rows;
  for (const c10::IValue& row : list.toListRef()) rows.push_back(numbers(row));
  return at::stack(rows);
}

void expect_continued(const tests::AcceleratorPtr& accelerator, Run& run, const Case& test_case) {
  const double tolerance = optional_member(test_case.input, "bf16") ? 5e-3 : 2e-5;
  const at::Tensor rows = rows_of(member(test_case.input, "inputs"));
  for (const c10::IValue& losses : member(test_case.expected, "losses").toListRef())
    for (size_t i = 0; i < run.models.size(); i++) {
      const at::Tensor loss = run.models[i]->call(nn::Inputs{rows}).toTensor().pow(2).mean();
      accelerator->backward().run(loss);
      run.optimizers[i]->step();
      run.optimizers[i]->zero_grad(true);
      EXPECT_NEAR(loss.item<double>(), losses.toListRef()[i].toScalar().toDouble(), tolerance);
    }
  for (size_t i = 0; i < run.models.size(); i++)
    expect_values(accelerator, run.models[i], member(test_case.expected, "weights_after").toListRef()[i], tolerance);
}

std::vector<Case> readable_cases() {
  std::vector<Case> cases;
  for (const Case& test_case : read_cases("sharded_checkpoints/expected"))
    if (test_case.name != "fsdp1_local") cases.push_back(test_case);
  return cases;
}

void resume(const Case& test_case, int ranks, bool sharded) {
  const CaseFolder folder(test_case.name);
  tests::run_accelerators(ranks, {}, [&](const tests::AcceleratorPtr& accelerator) {
    SCOPED_TRACE(text(test_case.name, " on ", ranks, " ranks, ", sharded ? "sharded" : "whole"));  // of this thread
    Run run = prepare(accelerator, test_case.input, sharded);
    accelerator->checkpoints().load_state(folder.path());
    for (size_t i = 0; i < run.models.size(); i++) {
      const auto rates = member(test_case.expected, "rates").toListRef()[i].toListRef();
      ASSERT_EQ(run.optimizers[i]->groups().size(), rates.size());
      for (size_t group = 0; group < rates.size(); group++)
        EXPECT_NEAR(run.optimizers[i]->lr(group), rates[group].toDouble(), 1e-9);
      // The moments of bfloat16 were recorded in float32.
      const bool is_in_bf16 = optional_member(test_case.input, "bf16").has_value();
      if (!sharded && !is_in_bf16) expect_moments(run, i, member(test_case.expected, "moments").toListRef()[i]);
      expect_values(accelerator, run.models[i], member(test_case.expected, "weights").toListRef()[i],
                    is_in_bf16 ? 5e-3 : 1e-6);
    }
    expect_continued(accelerator, run, test_case);
  });
}

// Regression: a folder that Accelerate's `save_state()` wrote under FSDP or DeepSpeed "holds 0 models".
TEST(ShardedCheckpointsParity, TrainingContinuesOnAnyNumberOfRanks) {
  const std::vector<Case> cases = readable_cases();
  EXPECT_EQ(cases.size(), 11);
  for (const Case& test_case : cases) {
    resume(test_case, 1, false);
    resume(test_case, 2, false);
    resume(test_case, 2, true);
    resume(test_case, 3, true);
  }
}

// The message of the error that a load gives, or of what it logs.
struct Loading {
  Status status = Status::kOk;
  std::string message;
  std::string logged;
};

Loading load(const std::string& name, const std::function<void(const fs::path&)>& change,
             const std::function<void(c10::impl::GenericDict&)>& prepare_otherwise = nullptr) {
  const CaseFolder folder(name);
  change(folder.path());
  c10::IValue input;
  for (const Case& test_case : read_cases("sharded_checkpoints/expected"))
    if (test_case.name == name) input = test_case.input;
  auto changed = input.toGenericDict().copy();
  if (prepare_otherwise) prepare_otherwise(changed);
  Loading loading;
  set_log_callback([](int32_t, const char* line, void* all) { *static_cast<std::string*>(all) += line; },
                   &loading.logged, nullptr);
  try {
    tests::run_accelerators(1, {}, [&](const tests::AcceleratorPtr& accelerator) {
      Run run = prepare(accelerator, changed, false);
      accelerator->checkpoints().load_state(folder.path());
    });
  } catch (const Error& error) {
    loading.status = error.status();
    loading.message = error.message();
  }
  set_log_callback(nullptr, nullptr, nullptr);
  return loading;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_error(const Loading& loading, Status status, const std::string& part) {
  EXPECT_EQ(loading.status, status) << loading.message;
  EXPECT_TRUE(has(loading.message, part)) << loading.message;
}

std::function<void(const fs::path&)> without(const std::string& file) {
  return [file](const fs::path& folder) { ASSERT_GT(fs::remove_all(folder / file), 0U) << file; };
}

TEST(ShardedCheckpointsParity, DamageIsAnErrorThatNamesTheFile) {
  const auto half = [](const std::string& file) {
    return [file](const fs::path& folder) { fs::resize_file(folder / file, fs::file_size(folder / file) / 2); };
  };
  expect_error(load("fsdp2_sharded", without("pytorch_model_fsdp_0/.metadata")), Status::kCorrupt,
               "pytorch_model_fsdp_0' has no .metadata");
  expect_error(load("fsdp2_sharded", without("optimizer_0/.metadata")), Status::kCorrupt,
               "optimizer_0' has no .metadata");
  for (const char* const file : {"optimizer_0/__1_0.distcp", "pytorch_model_fsdp_0/__0_0.distcp"})
    expect_error(load("fsdp2_sharded", half(file)), Status::kCorrupt, file);
  expect_error(load("fsdp2_full", half("optimizer.bin")), Status::kCorrupt, "optimizer.bin");
  expect_error(load("fsdp2_full", half("pytorch_model_fsdp.bin")), Status::kCorrupt, "pytorch_model_fsdp.bin");
  expect_error(load("deepspeed_2", without("pytorch_model/zero_pp_rank_1_mp_rank_00_optim_states.pt")),
               Status::kCorrupt, "pytorch_model' has no zero_pp_rank_1_");
  expect_error(load("deepspeed_3", without("pytorch_model/zero_pp_rank_1_mp_rank_00_model_states.pt")),
               Status::kCorrupt, "pytorch_model' has 1 *_model_states.pt, and 2 ranks");
  expect_error(load("deepspeed_2", without("pytorch_model/mp_rank_00_model_states.pt")), Status::kCorrupt,
               "pytorch_model' has no file of weights");
  expect_error(load("deepspeed_3", half("pytorch_model/zero_pp_rank_0_mp_rank_00_optim_states.pt")), Status::kCorrupt,
               "zero_pp_rank_0_mp_rank_00_optim_states.pt");
}

TEST(ShardedCheckpointsParity, FilesOfRanksAndOtherObjectsAreRefused) {
  expect_error(load("fsdp1_local", [](const fs::path&) {}), Status::kUnsupported, "_rank");
  const auto split = [](const fs::path& folder) {
    fs::copy_file(folder / "pytorch_model/mp_rank_00_model_states.pt",
                  folder / "pytorch_model/mp_rank_01_model_states.pt");
  };
  expect_error(load("deepspeed_2", split), Status::kUnsupported, "mp_rank_01_model_states.pt");
  const auto in_one_group = [](c10::impl::GenericDict& input) { input.insert_or_assign("groups", int64_t{1}); };
  expect_error(load(
                   "fsdp2_full", [](const fs::path&) {}, in_one_group),
               Status::kInvalidState, "has 2 groups of parameters, and the optimizer has 1");
  const auto without_frozen = [](c10::impl::GenericDict& input) { input.insert_or_assign("fsdp_version", int64_t{1}); };
  expect_error(load(
                   "fsdp2_full", [](const fs::path&) {}, without_frozen),
               Status::kInvalidState, "has the state of 'shift'");
  const auto with_another_model = [](c10::impl::GenericDict& input) { input.insert_or_assign("models", int64_t{2}); };
  expect_error(load(
                   "fsdp2_sharded", [](const fs::path&) {}, with_another_model),
               Status::kInvalidState, "holds 1 models and 2 are prepared");
}

TEST(ShardedCheckpointsParity, WhatCannotBeRestoredIsAWarning) {
  const auto without_optimizer = [](const fs::path& folder) {
    for (const char* const rank : {"0", "1"})
      ASSERT_TRUE(
          fs::remove(folder / ("pytorch_model/zero_pp_rank_" + std::string(rank) + "_mp_rank_00_optim_states.pt")));
  };
  Loading loading = load("deepspeed_2", without_optimizer);
  EXPECT_EQ(loading.status, Status::kOk) << loading.message;
  EXPECT_TRUE(has(loading.logged, "pytorch_model' holds no state of its optimizer")) << loading.logged;
  loading = load("deepspeed_1", without("scheduler.bin"));
  EXPECT_EQ(loading.status, Status::kOk) << loading.message;
  EXPECT_TRUE(has(loading.logged, "holds no 'scheduler', which continues as it is")) << loading.logged;
  loading = load("deepspeed_1", [](const fs::path&) {});
  EXPECT_EQ(loading.logged, "");
}

}  // namespace sharded_checkpoints_test
}  // namespace accel::parity
