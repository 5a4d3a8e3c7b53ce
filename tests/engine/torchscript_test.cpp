// SPDX-License-Identifier: Apache-2.0
#include "nn/torchscript_module.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "nn/module_walks.hpp"
#include "nn_fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace torchscript_test {

using tests::expect_close;
using tests::expect_error;

ModulePtr scripted() { return load_torchscript(tests::fixture_path("scripted.pt")); }

c10::impl::GenericList list_of(std::initializer_list<double> items) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const double item : items) list.push_back(item);
  return list;
}

TEST(TorchScript, ShowsItsTree) {
  const ModulePtr model = scripted();
  EXPECT_EQ(model->kind(), "Scripted");
  EXPECT_EQ(model->find("head")->kind(), "Linear");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model->state_dict()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"offset", "embedding.weight", "head.weight"}));
  EXPECT_TRUE(nn::find_tensor(*model, "head.weight").is_same(nn::find_tensor(*model, "embedding.weight")));
  EXPECT_EQ(nn::named_parameters(*model).size(), 1u);
}

TEST(TorchScript, RunsInEvaluationAndTraining) {
  const ModulePtr model = scripted();
  model->train(false);
  const Inputs inputs = {at::tensor({1, 4}, at::kLong), list_of({2.0, 0.5}), 1};
  const at::Tensor expected =
      at::tensor({1.470768, 1.052656, 0.471328, 1.980496, 2.971888, 1.550864, 0.971888, 0.556128, 1.969072, 3.061392},
                 at::kDouble);
  expect_close(model->call(inputs).toTensor(), expected, 1e-6);
  at::manual_seed(0);
  model->train();
  EXPECT_GT((model->call(inputs).toTensor().flatten() - expected).abs().max().item<double>(), 1e-3);  // dropout
}

TEST(TorchScript, TiedParametersTrainAsOne) {
  const ModulePtr model = scripted();
  const at::Tensor weight = nn::named_parameters(*model)[0].second;
  model->train(false);
  model->call(Inputs{at::tensor({1, 4}, at::kLong), list_of({})}).toTensor().sum().backward();
  // Rows 1 and 4 through the embedding, all rows through the head.
  const at::Tensor hidden = weight.detach().index({at::tensor({1, 4})}).sum(0);
  const at::Tensor expected = hidden.expand({5, 4}).clone();
  for (const int64_t row : {1, 4}) expected[row] += weight.detach().sum(0);
  expect_close(weight.grad(), expected, 1e-6);
}

TEST(TorchScript, MovesInPlace) {
  const ModulePtr model = scripted();
  const at::Tensor weight = nn::find_tensor(*model, "head.weight");
  model->to(at::kDouble, std::nullopt);
  EXPECT_TRUE(weight.is_same(nn::find_tensor(*model, "head.weight")));
  EXPECT_EQ(model->call(Inputs{at::tensor({1}, at::kLong), list_of({})}).toTensor().scalar_type(), at::kDouble);
}

// Those of the application are shared with the engine, and a script may change any that it has.
TEST(TorchScript, WorksOnCopiesOfContainers) {
  torch::jit::Module script("Appends");
  script.register_attribute("seen", c10::ListType::ofInts(), c10::List<int64_t>());
  script.define(
      "def forward(self, items: List[int]) -> List[int]:\n"
      "  items.append(7)\n"
      "  self.seen.append(len(items))\n"
      "  return self.seen\n");
  const std::string path =
      (std::filesystem::temp_directory_path() / text("accel_torchscript_", getpid(), ".pt")).string();
  script.save(path);
  const ModulePtr model = load_torchscript(path);
  std::filesystem::remove(path);
  const c10::impl::GenericList given = tree::new_list({1, 2});
  const c10::IValue first = model->call(Inputs{given});
  EXPECT_EQ(model->call(Inputs{given}).toListRef().size(), 2u);
  EXPECT_EQ(first.toListRef().size(), 1u);
  EXPECT_EQ(first.toListRef()[0].toInt(), 3);
  EXPECT_EQ(given.size(), 2u);
}

TEST(TorchScript, RunsHooksOnTheWholeModelOnly) {
  const ModulePtr model = scripted();
  int runs = 0;
  const PreHook count = [&](Module&, const Inputs&) -> std::optional<Inputs> {
    runs++;
    return std::nullopt;
  };
  model->hooks().add_pre_hook(count);
  model->call(Inputs{at::tensor({1}, at::kLong), list_of({})});
  EXPECT_EQ(runs, 1);
  expect_error(Status::kUnsupported, "'Linear' is inside", [&] { model->find("head")->hooks().add_pre_hook(count); });
}

// Weights are constants of the code then.
TEST(TorchScript, IsOptimizedForInference) {
  TorchscriptSettings settings;
  settings.optimize_for_inference = true;
  const std::string path = tests::fixture_path("scripted.pt");
  const ModulePtr model = load_torchscript(path, settings), whole = scripted();
  whole->train(false);
  EXPECT_FALSE(model->is_training());
  EXPECT_TRUE(model->state_dict().empty());
  const Inputs inputs = {at::tensor({1, 4}, at::kLong), list_of({2.0, 0.5}), 1};
  expect_close(model->call(inputs).toTensor(), whole->call(inputs).toTensor(), 1e-6);
  expect_error(Status::kUnsupported, "optimized for inference and cannot be trained", [&] { model->train(); });
  EXPECT_FALSE(model->is_training());
  settings.device = "nowhere";
  expect_error(Status::kInvalidArgument, "nowhere", [&] { load_torchscript(path, settings); });
}

TEST(TorchScript, NamesFilesThatItCannotRead) {
  expect_error(Status::kNotFound, "'no.pt'", [] { load_torchscript("no.pt"); });
  const std::string path =
      (std::filesystem::temp_directory_path() / text("accel_torchscript_", getpid(), ".pt")).string();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("this is not an archive", file);
  std::fclose(file);
  expect_error(Status::kCorrupt, path, [&] { load_torchscript(path); });
  std::filesystem::remove(path);
}

// Regression: a damaged TorchScript file was an internal error.
TEST(TorchScript, DamagedFilesAreCorrupt) {
  std::ifstream file(tests::fixture_path("scripted.pt"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string path =
      (std::filesystem::temp_directory_path() / text("accel_torchscript_", getpid(), ".pt")).string();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 400; round++) {
    std::string damaged = whole;
    if (round % 4 == 0) damaged.resize(random() % whole.size());
    for (auto flips = random() % 8 + 1; flips > 0 && !damaged.empty(); flips--)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << damaged;
    try {
      load_torchscript(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kCorrupt) << error.message();
      refused++;
    }
  }
  EXPECT_GT(refused, 100);
  std::filesystem::remove(path);
}

}  // namespace torchscript_test
}  // namespace accel::nn
