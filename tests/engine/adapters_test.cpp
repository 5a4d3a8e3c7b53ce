// SPDX-License-Identifier: Apache-2.0
// Adapters against PEFT: outputs, gradients, merged weights and files; and what they refuse.
#include "nn/adapters/adapters.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "architecture_fixture.hpp"
#include "checkpoint/formats/adapter_folder.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "expect_error.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/module_walks.hpp"
#include "os/regular_file.hpp"
#include "os/replaced_file.hpp"
#include "report/temporary_folder.hpp"

namespace accel::nn {
namespace adapters_test {

using tests::expect_error;
using tests::TemporaryFolder;
using tests::weight_of;

constexpr const char* kName = "mine";

ModulePtr base_model(const Json& recorded) {
  ModulePtr model = module_from_config(print_json(*json_member(recorded, "config")));
  model->train(false);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : named_parameters(*model))
    tensor.copy_(weight_of(name, tensor.sizes(), json_integer(recorded, "seed", 0)));
  return model;
}

LoraConfig config_of(const Json& recorded) {
  return checkpoint::read_adapter_config(*json_member(recorded, "adapter"), "the fixture");
}

std::string in_files(const std::string& path) { return "base_model.model." + path; }

ModulePtr adapted_model(const Json& recorded) {
  ModulePtr model = base_model(recorded);
  add_lora(*model, kName, config_of(recorded));
  const at::NoGradGuard no_grad;
  for (const auto& [path, tensor] : adapter_tensors(*model, kName))
    at::Tensor(tensor).copy_(weight_of(in_files(path), tensor.sizes(), json_integer(recorded, "seed", 0)));
  return model;
}

at::Tensor tokens_in(const Json& recorded) { return tests::tokens_of(*json_member(recorded, "tokens")); }

template <typename Check>
void for_each_case(const Check& check) {
  const Json fixture = tests::read_cases("adapters.json");
  for (const Json& recorded : *fixture.items()) {
    SCOPED_TRACE(print_json(*json_member(recorded, "adapter")));
    check(recorded);
  }
}

TEST(Adapters, GiveTheOutputsAndGradientsOfTheReference) {
  for_each_case([](const Json& recorded) {
    const ModulePtr model = adapted_model(recorded);
    std::map<std::string, std::vector<int64_t>> expected, found;
    for (const Json& entry : *json_member(recorded, "files")->items())
      expected[*(*entry.items())[0].text()] = tests::integers((*entry.items())[1]);
    for (const auto& [path, tensor] : adapter_tensors(*model, kName)) found[in_files(path)] = tensor.sizes().vec();
    EXPECT_EQ(found, expected);
    const at::Tensor logits = model->call(tokens_in(recorded));
    tests::expect_close(logits, tests::tensor_of(*json_member(recorded, "logits")), 1e-5);
    const at::Tensor loss =
        (logits * (at::arange(logits.numel(), at::kDouble) * 0.37).sin().to(at::kFloat).view_as(logits)).sum();
    EXPECT_NEAR(loss.item<double>(), json_number(recorded, "loss", 0), 2e-5);
    loss.backward();
    const Json& gradients = *json_member(recorded, "gradients");
    size_t trained = 0;
    for (const auto& [path, tensor] : named_parameters(*model)) {
      if (!tensor.requires_grad()) {
        EXPECT_FALSE(tensor.grad().defined()) << path;
        continue;
      }
      trained += 1;
      std::string name = path;
      if (const size_t own = name.find(std::string(".") + kName); own != std::string::npos)
        name.erase(own, std::string(".").size() + std::string(kName).size());
      if (name.find("magnitude") != std::string::npos) name = name.substr(0, name.rfind('.'));
      const Json* const numbers_of = json_member(gradients, name);
      ASSERT_NE(numbers_of, nullptr) << name;
      const std::vector<double> numbers = tests::numbers(*numbers_of);
      EXPECT_NEAR(tensor.grad().norm().item<double>(), numbers[0], 1e-5 + 1e-5 * numbers[0]) << name;
      EXPECT_NEAR(tensor.grad().flatten()[1 % tensor.numel()].item<double>(), numbers[1], 1e-5 + 1e-5 * numbers[0])
          << name;
    }
    EXPECT_EQ(trained, gradients.members()->size());
  });
}

TEST(Adapters, MergeIntoTheWeightsAndLeaveThem) {
  const at::NoGradGuard no_grad;
  for_each_case([](const Json& recorded) {
    const ModulePtr model = adapted_model(recorded), base = base_model(recorded);
    const at::Tensor apart = model->call(tokens_in(recorded));
    merge_adapters(*model);
    merge_adapters(*model);  // once is enough
    tests::expect_close(model->call(tokens_in(recorded)), tests::tensor_of(*json_member(recorded, "merged")), 1e-5);
    expect_error(Status::kInvalidState, "is merged into", [&] { remove_adapter(*model, kName); });
    unmerge_adapters(*model);
    tests::expect_close(model->call(tokens_in(recorded)), apart, 1e-5);
    if (!config_of(recorded).modules_to_save.empty()) return;
    remove_adapter(*model, kName);
    if (config_of(recorded).bias == "none")
      tests::expect_close(model->call(tokens_in(recorded)), base->call(tokens_in(recorded)), 1e-5);
    EXPECT_TRUE(adapter_names(*model).empty());
  });
}

TEST(Adapters, BeginAsTheModelWasUnlessTheyAreRandom) {
  const at::NoGradGuard no_grad;
  const Json fixture = tests::read_cases("adapters.json");
  for (const LoraStart start : {LoraStart::kZero, LoraStart::kGaussian, LoraStart::kRandom}) {
    const Json& recorded = fixture.items()->front();
    const ModulePtr model = base_model(recorded);
    const at::Tensor before = model->call(tokens_in(recorded));
    LoraConfig config = config_of(recorded);
    config.shape.start = start;
    add_lora(*model, kName, config);
    EXPECT_EQ(at::equal(model->call(tokens_in(recorded)), before), start != LoraStart::kRandom);
  }
}

// The layers of a model without names of the hub, [outputs, inputs] each.
std::shared_ptr<Sequential> two_layers() {
  const std::vector<ModulePtr> layers = {std::make_shared<Linear>(6, 5, true), std::make_shared<Linear>(5, 3, true)};
  auto model = std::make_shared<Sequential>(layers);
  model->train(false);
  return model;
}

LoraConfig random_lora(const std::vector<std::string>& endings) {
  LoraConfig config;
  config.shape.rank = 2;
  config.shape.start = LoraStart::kRandom;
  config.targets.endings = endings;
  return config;
}

TEST(Adapters, AreChosenForTheModelAndForACall) {
  const at::NoGradGuard no_grad;
  const auto model = two_layers();
  const at::Tensor input = at::arange(12, at::kFloat).view({2, 6}) / 10, plain = model->call(input);
  add_lora(*model, "one", random_lora({"0"}));
  const at::Tensor one = model->call(input);
  add_lora(*model, "two", random_lora({"0", "1"}));
  const at::Tensor two = model->call(input);
  EXPECT_EQ(active_adapters(*model), AdapterNames({"two"}));
  EXPECT_EQ(adapter_names(*model), AdapterNames({"one", "two"}));
  EXPECT_FALSE(one.equal(plain) || two.equal(plain) || two.equal(one));
  set_active_adapters(*model, {"one"});
  EXPECT_TRUE(model->call(input).equal(one));
  set_active_adapters(*model, {});
  EXPECT_TRUE(model->call(input).equal(plain));
  {
    const AdapterScope scope(std::make_shared<const AdapterNames>(AdapterNames{"two"}));
    EXPECT_TRUE(model->call(input).equal(two));
    const AdapterScope none(std::make_shared<const AdapterNames>());
    EXPECT_TRUE(model->call(input).equal(plain));
  }
  set_active_adapters(*model, {"one", "two"});
  EXPECT_FALSE(model->call(input).equal(one) || model->call(input).equal(two));
  merge_adapters(*model);
  unmerge_adapters(*model);
  set_active_adapters(*model, {});
  EXPECT_TRUE(at::allclose(model->call(input), plain, 1e-5, 1e-6));
}

// Regression: a second adapter was added to the factors of the first one, too, and removing that crashed.
TEST(Adapters, AreNotAddedToEachOther) {
  const auto model = std::make_shared<Sequential>(std::vector<ModulePtr>{two_layers()});
  for (const char* const name : {"one", "two"})
    EXPECT_EQ(add_lora(*model, name, random_lora({"all-linear"})), std::vector<std::string>({"0.0", "0.1"}));
  remove_adapter(*model, "one");
  EXPECT_EQ(adapter_names(*model), AdapterNames({"two"}));
  LoraConfig all = random_lora({});
  all.targets.expression = R"(0\.[01](\..*)?)";  // the factors, too
  EXPECT_EQ(add_lora(*model, "three", all), std::vector<std::string>({"0.0", "0.1"}));
}

TEST(Adapters, DropoutActsOnTheirInputsInTraining) {
  const auto model = two_layers();
  LoraConfig config = random_lora({"0"});
  config.shape.dropout = 0.5;
  add_lora(*model, kName, config);
  const at::Tensor input = at::arange(12, at::kFloat).view({2, 6});
  EXPECT_TRUE(model->call(input).equal(model->call(input)));
  model->train(true);
  EXPECT_FALSE(model->call(input).equal(model->call(input)));
}

TEST(Adapters, ComputeInFloat32BesideHalfPrecision) {
  const auto model = two_layers();
  model->to(at::kBFloat16, std::nullopt);
  add_lora(*model, kName, random_lora({"0"}));
  for (const auto& [path, tensor] : adapter_tensors(*model, kName)) EXPECT_EQ(tensor.scalar_type(), at::kFloat) << path;
  const at::Tensor output = model->call(at::arange(12, at::kFloat).view({2, 6}).to(at::kBFloat16));
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
}

// Regression: what backward computes again had the adapters of the model, not those of the call.
TEST(Adapters, RecomputedForwardsHaveThoseOfTheCall) {
  const auto gradient = [](bool recomputes) {
    const auto model = two_layers();
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : named_parameters(*model)) tensor.copy_(weight_of(name, tensor.sizes(), 3));
    }
    add_lora(*model, kName, random_lora({"0", "1"}));
    const NamedTensors tensors = adapter_tensors(*model, kName);
    {
      const at::NoGradGuard no_grad;
      for (const auto& [path, tensor] : tensors) at::Tensor(tensor).copy_(weight_of(path, tensor.sizes(), 3));
    }
    for (const auto& [path, tensor] : tensors) tensor.set_requires_grad(true);
    set_active_adapters(*model, {});
    for (const auto& [path, tensor] : tensors) tensor.set_requires_grad(true);
    if (recomputes) model->set_activation_checkpointing(std::make_shared<const ActivationCheckpointingSettings>());
    at::Tensor loss;
    {
      const AdapterScope scope(std::make_shared<const AdapterNames>(AdapterNames{kName}));
      loss = model->call(at::arange(12, at::kFloat).view({2, 6})).square().sum();
    }
    loss.backward();
    return tensors.front().second.grad();
  };
  EXPECT_TRUE(gradient(true).equal(gradient(false)));
}

TEST(Adapters, FoldersComeBack) {
  const at::NoGradGuard no_grad;
  for_each_case([](const Json& recorded) {
    const TemporaryFolder folder;
    const ModulePtr model = adapted_model(recorded);
    checkpoint::save_adapter(*model, kName, folder.path() + "/adapter");
    const ModulePtr other = base_model(recorded);
    EXPECT_EQ(checkpoint::load_adapter(*other, "another", folder.path() + "/adapter"),
              find_adapter(*model, kName).layers);
    EXPECT_TRUE(other->call(tokens_in(recorded)).equal(model->call(tokens_in(recorded))));
  });
}

TEST(Adapters, FoldersHaveTheNamesOfTheHub) {
  const at::NoGradGuard no_grad;
  const auto tower = [] {
    ModulePtr model = module_from_config(
        R"({"model_type": "clip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 4, "patch_size": 2})");
    model->train(false);
    for (const auto& [name, tensor] : named_parameters(*model))
      at::Tensor(tensor).copy_(weight_of(name, tensor.sizes(), 3));
    return model;
  };
  const TemporaryFolder folder;
  const ModulePtr model = tower(), other = tower();
  add_lora(*model, kName, random_lora({"q_proj"}));
  checkpoint::save_adapter(*model, kName, folder.path());
  for (const auto& [name, tensor] : checkpoint::load_safetensors(folder.path() + "/adapter_model.safetensors").tensors)
    EXPECT_EQ(name.find("base_model.model.vision_model.encoder.layers.0.self_attn.q_proj.lora_"), 0) << name;
  checkpoint::load_adapter(*other, kName, folder.path());
  const NamedTensors saved = adapter_tensors(*model, kName), loaded = adapter_tensors(*other, kName);
  ASSERT_EQ(loaded.size(), 2);
  for (size_t i = 0; i < loaded.size(); i++) EXPECT_TRUE(loaded[i].second.equal(saved[i].second)) << loaded[i].first;
}

TEST(Adapters, AFolderOfAnotherModelLeavesNothing) {
  const TemporaryFolder folder;
  const auto model = two_layers();
  add_lora(*model, kName, random_lora({"0"}));
  checkpoint::save_adapter(*model, kName, folder.path());
  const auto other = std::make_shared<Sequential>(std::vector<ModulePtr>{std::make_shared<Linear>(7, 5, true)});
  expect_error(Status::kShapeMismatch, "the tensor '0.lora_A.weight' of the adapter 'mine' is [2, 6]; expected [2, 7]",
               [&] { checkpoint::load_adapter(*other, kName, folder.path()); });
  EXPECT_TRUE(adapter_names(*other).empty());
  expect_error(Status::kNotFound, "none", [&] { checkpoint::load_adapter(*other, kName, folder.path() + "/none"); });
}

TEST(Adapters, ConfigurationsThatMeanMoreAreRefused) {
  const auto read = [](const char* text) { checkpoint::read_adapter_config(parse_json(text, "here"), "here"); };
  read(R"({"peft_type": "LORA", "target_modules": ["a"], "lora_bias": false, "eva_config": null, "new_field": []})");
  expect_error(Status::kUnsupported, "peft_type is 'IA3'; expected LORA", [&] { read(R"({"peft_type": "IA3"})"); });
  expect_error(Status::kUnsupported, "lora_bias is true", [&] { read(R"({"lora_bias": true})"); });
  expect_error(Status::kUnsupported, "\"pissa\"", [&] { read(R"({"init_lora_weights": "pissa"})"); });
  expect_error(Status::kTypeMismatch, "r", [&] { read(R"({"r": "four"})"); });
  expect_error(Status::kInvalidArgument, "target_modules has 1", [&] { read(R"({"target_modules": [1]})"); });
  expect_error(Status::kInvalidArgument, "rank_pattern has 0.5", [&] { read(R"({"rank_pattern": {"a": 0.5}})"); });
}

// Regression: such a name was ignored, and nothing beside the adapter was trained.
TEST(Adapters, ModulesToSaveAreThere) {
  const auto model = two_layers();
  LoraConfig config = random_lora({"0"});
  config.modules_to_save = {"1", "head"};
  expect_error(Status::kNotFound, "modules_to_save has 'head', which fits no module",
               [&] { add_lora(*model, kName, config); });
  EXPECT_TRUE(adapter_names(*model).empty());
  config.modules_to_save = {"1"};
  add_lora(*model, kName, config);
  EXPECT_TRUE(model->find("1")->parameter(0).requires_grad());
  // Folders of PEFT name the heads of all classes; one of them has to be there.
  const TemporaryFolder folder;
  checkpoint::save_adapter(*model, kName, folder.path());
  const std::string path = folder.path() + "/adapter_config.json", written = RegularFile(path).read();
  const auto load_with = [&](const std::string& names) {
    std::string text = written;
    const std::string field = R"("modules_to_save":["1"])";
    replace_file(path, text.replace(text.find(field), field.size(), R"("modules_to_save":)" + names));
    const auto other = two_layers();
    checkpoint::load_adapter(*other, kName, folder.path());
    return find_adapter(*other, kName).config->modules_to_save;
  };
  EXPECT_EQ(load_with(R"(["1","score"])"), std::vector<std::string>{"1"});
  expect_error(Status::kNotFound, "modules_to_save has 'score'", [&] { load_with(R"(["score"])"); });
}

TEST(Adapters, RefuseWhatTheyCannotDo) {
  const auto model = two_layers();
  const auto add = [&](const LoraConfig& config, const char* name = kName) { add_lora(*model, name, config); };
  expect_error(Status::kNotFound, "target_modules is 'q_proj' and fits no linear",
               [&] { add(random_lora({"q_proj"})); });
  expect_error(Status::kInvalidArgument, "target_modules is empty", [&] { add(random_lora({})); });
  expect_error(Status::kInvalidArgument, "expected one without a dot", [&] { add(random_lora({"0"}), "a.b"); });
  LoraConfig wrong = random_lora({"0"});
  wrong.shape.rank = 0;
  expect_error(Status::kInvalidArgument, "the rank of '0' is 0; expected at least 1", [&] { add(wrong); });
  wrong = random_lora({"0"});
  wrong.bias = "some";
  expect_error(Status::kInvalidArgument, "bias is 'some'", [&] { add(wrong); });
  wrong = random_lora({});
  wrong.targets.expression = "(";
  expect_error(Status::kInvalidArgument, "target_modules is '('", [&] { add(wrong); });
  EXPECT_TRUE(adapter_names(*model).empty());
  for (const auto& [name, tensor] : named_parameters(*model)) EXPECT_TRUE(tensor.requires_grad()) << name;
  add(random_lora({"0"}));
  expect_error(Status::kAlreadyExists, "the model has an adapter 'mine'", [&] { add(random_lora({"0"})); });
  expect_error(Status::kNotFound, "has no adapter 'other'", [&] { set_active_adapters(*model, {"other"}); });
  expect_error(Status::kNotFound, "has no adapter 'other'", [&] { remove_adapter(*model, "other"); });
}

}  // namespace adapters_test
}  // namespace accel::nn
