// SPDX-License-Identifier: Apache-2.0
#include "nn/module.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "nn/callback_module.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/module_walks.hpp"
#include "nn_fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace nn_test {

using tests::expect_error;

std::vector<std::string> names_of(const NamedTensors& entries) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : entries) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

ModulePtr small_model() {
  return std::make_shared<Sequential>(std::vector<ModulePtr>{
      std::make_shared<Linear>(3, 4, true), std::make_shared<BatchNorm>(4), std::make_shared<Linear>(4, 2, false)});
}

TEST(NnModule, ListsParametersBuffersAndModulesInOrder) {
  const ModulePtr model = small_model();
  EXPECT_EQ(names_of(nn::named_parameters(*model)), (Names{"0.weight", "0.bias", "1.weight", "1.bias", "2.weight"}));
  EXPECT_EQ(names_of(nn::named_buffers(*model)), (Names{"1.running_mean", "1.running_var", "1.num_batches_tracked"}));
  EXPECT_EQ(names_of(model->state_dict()), (Names{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                                  "1.running_var", "1.num_batches_tracked", "2.weight"}));
  const auto modules = nn::named_modules(*model);
  ASSERT_EQ(modules.size(), 4u);
  EXPECT_EQ(modules[0].first, "");
  EXPECT_EQ(modules[2].first, "1");
  EXPECT_EQ(modules[2].second->kind(), "BatchNorm");
  EXPECT_EQ(nn::num_parameters(*model), 12 + 4 + 4 + 4 + 8);
}

TEST(NnModule, RefusesBadNames) {
  const auto module = std::make_shared<Module>("Node");
  module->add_parameter("weight", at::ones({2}));
  module->add_buffer("state", at::ones({2}), false);
  expect_error(Status::kAlreadyExists, "'weight'", [&] { module->add_buffer("weight", at::ones({2})); });
  expect_error(Status::kAlreadyExists, "'state'", [&] { module->add_child("state", small_model()); });
  const auto scales = std::make_shared<Module>("Scales");
  scales->add_buffer("absmax", at::ones({2}));
  module->add_child("weight", scales);
  expect_error(Status::kAlreadyExists, "'weight'", [&] { module->add_child("weight", small_model()); });
  expect_error(Status::kInvalidArgument, "'a.b'", [&] { module->add_child("a.b", small_model()); });
  expect_error(Status::kInvalidArgument, "''", [&] { module->add_parameter("", at::ones({2})); });
  EXPECT_EQ(names_of(module->state_dict()), (Names{"weight", "weight.absmax"}));  // the buffer is not persistent
}

TEST(NnModule, RefusesBadParameters) {
  const auto module = std::make_shared<Module>("Node");
  expect_error(Status::kInvalidArgument, "floating dtype",
               [&] { module->add_parameter("a", at::ones({2}, at::kLong)); });
  expect_error(Status::kTypeMismatch, "no tensor", [&] { module->add_parameter("a", at::Tensor()); });
  const at::Tensor computed = at::ones({2}).set_requires_grad(true) * 2;
  expect_error(Status::kInvalidArgument, "detach", [&] { module->add_parameter("a", computed); });
}

TEST(NnModule, RefusesCycles) {
  const auto top = std::make_shared<Module>("Top");
  const auto middle = std::make_shared<Module>("Middle");
  top->add_child("middle", middle);
  expect_error(Status::kInvalidArgument, "'back' contains", [&] { middle->add_child("back", top); });
  expect_error(Status::kInvalidArgument, "'self' contains", [&] { top->add_child("self", top); });
}

TEST(NnModule, SharedModuleIsOneModule) {
  const auto layer = std::make_shared<Linear>(2, 2, false);
  const auto model = std::make_shared<Sequential>(std::vector<ModulePtr>{layer, layer});
  EXPECT_EQ(names_of(nn::named_parameters(*model)), (Names{"0.weight"}));
  EXPECT_EQ(names_of(model->state_dict()), (Names{"0.weight", "1.weight"}));
  EXPECT_EQ(nn::named_modules(*model).size(), 2u);
}

TEST(NnModule, FindsByPath) {
  const ModulePtr model = small_model();
  EXPECT_EQ(model->find(""), model);
  EXPECT_EQ(model->find("1")->kind(), "BatchNorm");
  EXPECT_TRUE(nn::find_tensor(*model, "0.bias").is_same(model->find("0")->parameter(1)));
  EXPECT_EQ(nn::find_tensor(*model, "1.running_var").numel(), 4);
  expect_error(Status::kNotFound, "no child '7'", [&] { model->find("7.weight"); });
  expect_error(Status::kNotFound, "'0.'", [&] { model->find("0."); });
  expect_error(Status::kNotFound, "'0.gain'", [&] { nn::find_tensor(*model, "0.gain"); });
}

TEST(NnModule, CallWithoutForwardFails) {
  const auto module = std::make_shared<CallbackModule>("Mine");
  expect_error(Status::kInvalidState, "'Mine'", [&] { module->call(at::ones({1})); });
  module->set_forward([](Module&, const Inputs& inputs) -> c10::IValue { return inputs[0].toTensor() * 2; });
  EXPECT_EQ(module->call(at::ones({1})).item<double>(), 2);
}

TEST(NnModule, RefusesWrongInputs) {
  const ModulePtr layer = std::make_shared<Linear>(2, 2, true);
  expect_error(Status::kInvalidArgument, "2 inputs", [&] { layer->call(Inputs{at::ones({1, 2}), 1}); });
  expect_error(Status::kTypeMismatch, "a int", [&] { layer->call(Inputs{1}); });
}

TEST(NnModule, HooksRunInOrderAndReplace) {
  const auto module = std::make_shared<CallbackModule>("Mine");
  std::string trace;
  module->set_forward([&](Module&, const Inputs& inputs) {
    trace += "f";
    return inputs[0];
  });
  module->hooks().add_pre_hook([&](Module&, const Inputs& inputs) -> std::optional<Inputs> {
    trace += "1";
    return Inputs{inputs[0].toInt() + 1};
  });
  const int64_t second = module->hooks().add_pre_hook([&](Module&, const Inputs& inputs) -> std::optional<Inputs> {
    trace += "2";
    EXPECT_EQ(inputs[0].toInt(), 11);
    return std::nullopt;
  });
  module->hooks().add_post_hook(
      [&](Module&, const Inputs& inputs, const c10::IValue& output) -> std::optional<c10::IValue> {
        trace += "3";
        EXPECT_EQ(inputs[0].toInt(), 11);
        return output.toInt() * 2;
      });
  EXPECT_EQ(module->call(Inputs{10}).toInt(), 22);
  EXPECT_EQ(trace, "12f3");
  module->hooks().remove_hook(second);
  trace.clear();
  module->call(Inputs{10});
  EXPECT_EQ(trace, "1f3");
}

TEST(NnModule, HookMayRemoveItself) {
  const auto module = std::make_shared<CallbackModule>("Mine");
  module->set_forward([](Module&, const Inputs& inputs) { return inputs[0]; });
  int runs = 0;
  int64_t id = -1;
  id = module->hooks().add_pre_hook([&](Module& self, const Inputs&) -> std::optional<Inputs> {
    runs++;
    EXPECT_TRUE(self.hooks().remove_hook(id));
    return std::nullopt;
  });
  int behind = 0;
  module->hooks().add_pre_hook([&](Module&, const Inputs&) -> std::optional<Inputs> {
    behind++;
    return std::nullopt;
  });
  module->call(Inputs{1});
  module->call(Inputs{1});
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(behind, 2) << "is not left out when the hook before it goes";
  EXPECT_FALSE(module->hooks().remove_hook(id));
}

TEST(NnModule, StaysUsableAfterAnError) {
  const auto module = std::make_shared<CallbackModule>("Mine");
  module->set_forward([](Module&, const Inputs& inputs) -> c10::IValue {
    require(inputs[0].toInt() > 0, Status::kUser, "not now");
    return inputs[0];
  });
  expect_error(Status::kUser, "not now", [&] { module->call(Inputs{0}); });
  EXPECT_EQ(module->call(Inputs{3}).toInt(), 3);
}

TEST(NnModule, TieSharesOneParameter) {
  const auto model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<Linear>(3, 3, false), std::make_shared<Linear>(3, 3, false)});
  nn::tie(*model, "1.weight", "0.weight");
  EXPECT_TRUE(nn::find_tensor(*model, "1.weight").is_same(nn::find_tensor(*model, "0.weight")));
  EXPECT_EQ(nn::num_parameters(*model), 9);
  EXPECT_EQ(names_of(model->state_dict()), (Names{"0.weight", "1.weight"}));
  expect_error(Status::kNotFound, "'1.bias'", [&] { nn::tie(*model, "1.bias", "0.weight"); });
  const ModulePtr other = small_model();
  expect_error(Status::kShapeMismatch, "[2, 4]", [&] { nn::tie(*other, "2.weight", "0.weight"); });
}

TEST(NnModule, StateDictSharesMemoryAndLoadsBack) {
  const ModulePtr model = small_model();
  const ModulePtr other = small_model();
  other->load_state_dict(model->state_dict());
  for (const auto& [name, tensor] : model->state_dict()) {
    EXPECT_FALSE(tensor.requires_grad());
    EXPECT_TRUE(at::equal(tensor, nn::find_tensor(*other, name))) << name;
    EXPECT_EQ(tensor.data_ptr(), nn::find_tensor(*model, name).data_ptr());
  }
}

TEST(NnModule, LoadChecksEverythingFirst) {
  const ModulePtr model = small_model();
  NamedTensors entries = model->state_dict();
  for (auto& [name, tensor] : entries) tensor = tensor + 1;
  const at::Tensor before = nn::find_tensor(*model, "0.weight").detach().clone();

  NamedTensors reshaped = entries;
  reshaped.back().second = at::zeros({7});
  expect_error(Status::kShapeMismatch, "2.weight [7] instead of [2, 4]",
               [&] { model->load_state_dict(reshaped, false); });
  NamedTensors renamed = entries;
  renamed.back().first = "2.gain";
  expect_error(Status::kNotFound, "missing '2.weight'; unexpected '2.gain'", [&] { model->load_state_dict(renamed); });
  NamedTensors twice = entries;
  twice.push_back(twice.front());
  expect_error(Status::kInvalidArgument, "'0.weight' is there twice", [&] { model->load_state_dict(twice); });
  EXPECT_TRUE(at::equal(before, nn::find_tensor(*model, "0.weight")));

  const LoadReport report = model->load_state_dict(renamed, false);
  EXPECT_EQ(report.missing, (Names{"2.weight"}));
  EXPECT_EQ(report.unexpected, (Names{"2.gain"}));
  EXPECT_TRUE(at::equal(before + 1, nn::find_tensor(*model, "0.weight")));
}

TEST(NnModule, TiedTensorNeedsOneName) {
  const auto model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<Linear>(3, 3, false), std::make_shared<Linear>(3, 3, false)});
  nn::tie(*model, "1.weight", "0.weight");
  model->load_state_dict({{"1.weight", at::ones({3, 3})}});
  EXPECT_TRUE(at::equal(nn::find_tensor(*model, "0.weight"), at::ones({3, 3})));
}

TEST(NnModule, ToKeepsTheIdentityOfTensors) {
  const ModulePtr model = small_model();
  const at::Tensor weight = nn::find_tensor(*model, "0.weight");
  weight.mutable_grad() = at::ones({4, 3});
  model->to(at::kDouble, std::nullopt);
  EXPECT_TRUE(weight.is_same(nn::find_tensor(*model, "0.weight")));
  EXPECT_EQ(weight.scalar_type(), at::kDouble);
  EXPECT_EQ(weight.grad().scalar_type(), at::kDouble);
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(nn::find_tensor(*model, "1.running_mean").scalar_type(), at::kDouble);
  EXPECT_EQ(nn::find_tensor(*model, "1.num_batches_tracked").scalar_type(), at::kLong);
  model->call(at::ones({5, 3}, at::kDouble)).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  expect_error(Status::kInvalidArgument, "floating dtype", [&] { model->to(at::kLong, std::nullopt); });
}

TEST(NnModule, TrainReachesEveryModule) {
  const auto dropout = std::make_shared<Dropout>(1.0);
  const auto model = std::make_shared<Sequential>(std::vector<ModulePtr>{dropout});
  EXPECT_EQ(model->call(at::ones({4})).sum().item<double>(), 0);
  model->train(false);
  EXPECT_FALSE(dropout->is_training());
  EXPECT_EQ(model->call(at::ones({4})).sum().item<double>(), 4);
}

TEST(NnModuleHooks, EarlierClassesAreAroundLaterOnes) {
  const auto layer = std::make_shared<Linear>(1, 1, false);
  std::string order;
  const auto before = [&](const char* name) {
    return [&order, name](Module&, const Inputs&) -> std::optional<Inputs> { return order += name, std::nullopt; };
  };
  const auto after = [&](const char* name) {
    return [&order, name](Module&, const Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
      return order += name, std::nullopt;
    };
  };
  layer->hooks().add_pre_hook(before("a"));
  layer->hooks().add_pre_hook(before("b"));
  layer->hooks().add_pre_hook(before("P"), HookOrder::kPlacement);
  layer->hooks().add_pre_hook(before("h"), HookOrder::kPrecision);
  layer->hooks().add_post_hook(after("P"), HookOrder::kPlacement);
  layer->hooks().add_post_hook(after("a"));
  layer->hooks().add_post_hook(after("h"), HookOrder::kPrecision);
  layer->hooks().add_post_hook(after("b"));
  layer->call(at::ones({1, 1}));
  EXPECT_EQ(order, "PhababhP");
}

TEST(NnModuleHooks, AHookThatAddsAnEarlierOneRunsOnce) {
  const auto layer = std::make_shared<Linear>(1, 1, false);
  int runs = 0;
  layer->hooks().add_pre_hook([&](Module& module, const Inputs&) -> std::optional<Inputs> {
    if (runs++ == 0)
      module.hooks().add_pre_hook([](Module&, const Inputs&) -> std::optional<Inputs> { return std::nullopt; },
                                  HookOrder::kPlacement);
    return std::nullopt;
  });
  layer->call(at::ones({1, 1}));
  EXPECT_EQ(runs, 1);
}

TEST(NnModuleHooks, OfTheBackwardSeeAndReplaceGradients) {
  const auto layer = std::make_shared<Linear>(2, 1, false);
  layer->parameter(0).detach().fill_(3);
  std::vector<std::string> order;
  layer->hooks().add_backward_pre_hook([&](Module& module, const Inputs& gradients) -> std::optional<Inputs> {
    EXPECT_EQ(&module, layer.get());
    EXPECT_FALSE(layer->parameter(0).grad().defined());
    EXPECT_EQ(gradients[0].toTensor().item<float>(), 1);
    order.emplace_back("output");
    return Inputs{gradients[0].toTensor() * 2};
  });
  const int64_t id = layer->hooks().add_backward_hook([&](Module&, const Inputs& gradients) -> std::optional<Inputs> {
    EXPECT_EQ(gradients[0].toTensor()[0][1].item<float>(), 6);
    order.emplace_back("input");
    return Inputs{gradients[0].toTensor() + 1};
  });
  const at::Tensor input = at::ones({1, 2}).set_requires_grad(true);
  layer->call(input).sum().backward();
  EXPECT_EQ(order, (std::vector<std::string>{"output", "input"}));
  EXPECT_EQ(input.grad()[0][0].item<float>(), 7);
  EXPECT_EQ(layer->parameter(0).grad()[0][0].item<float>(), 2);

  // An input without a gradient: the hook runs all the same, and has none to see.
  layer->parameter(0).mutable_grad().reset();
  EXPECT_TRUE(layer->hooks().remove_hook(id));
  layer->hooks().add_backward_hook([&](Module&, const Inputs& gradients) -> std::optional<Inputs> {
    EXPECT_TRUE(gradients.empty());
    order.emplace_back("none");
    return std::nullopt;
  });
  layer->call(at::ones({1, 2})).sum().backward();
  EXPECT_EQ(order.back(), "none");
  {
    const at::NoGradGuard no_grad;
    layer->call(input);
  }
  EXPECT_EQ(order.size(), 4U);
}

TEST(NnModuleHooks, OfTheBackwardKeepNoModuleAlive) {
  std::weak_ptr<Module> gone;
  {
    const auto layer = std::make_shared<Linear>(1, 1, false);
    layer->hooks().add_backward_hook([](Module&, const Inputs&) -> std::optional<Inputs> { return std::nullopt; });
    layer->call(at::ones({1, 1}).set_requires_grad(true)).sum().backward();
    gone = layer;
  }
  EXPECT_TRUE(gone.expired());
}

TEST(NnModuleHooks, OfTheBackwardMustReturnWhatTheyWereGiven) {
  const auto layer = std::make_shared<Linear>(1, 1, false);
  layer->hooks().add_backward_pre_hook([](Module&, const Inputs&) -> std::optional<Inputs> { return Inputs{}; });
  const at::Tensor output = layer->call(at::ones({1, 1}));
  expect_error(Status::kShapeMismatch, "returned 0 values; expected 1", [&] { output.sum().backward(); });
}

TEST(NnModuleInputs, HaveNamesThatStandForPlaces) {
  const auto layer = std::make_shared<Linear>(1, 1, false);
  const at::Tensor input = at::ones({1, 1});
  EXPECT_TRUE(layer->call({}, {{"input", input}}).isTensor());
  expect_error(Status::kNotFound, "has no input 'inptu'; its inputs are input", [&] {
    layer->call({}, {{"inptu", input}});
  });
  expect_error(Status::kInvalidArgument, "was given twice", [&] { layer->call({input}, {{"input", input}}); });

  const auto host = std::make_shared<CallbackModule>("Host");
  host->set_forward([](Module&, const Inputs& inputs) {
    auto kinds = tree::new_list();
    for (const c10::IValue& given : inputs) kinds.push_back(std::string(tree::kind_name(given)));
    return kinds;
  });
  expect_error(Status::kNotFound, "its inputs have no names", [&] { host->call({}, {{"x", 1}}); });
  host->set_input_names({"x", "mask", "scale"});
  const c10::IValue kinds = host->call({input}, {{"scale", 2.0}});
  EXPECT_EQ(kinds.toListRef().size(), 3U);
  EXPECT_EQ(kinds.toListRef()[1].toStringRef(), tree::kind_name(c10::IValue()));
  EXPECT_EQ(host->call({}, {{"mask", 1}, {"x", 2}}).toListRef().size(), 2U);
}

TEST(NnModuleParameters, AreListedAnewWhenAPartChanges) {
  const auto outer = std::make_shared<CallbackModule>("Outer");
  const auto inner = std::make_shared<CallbackModule>("Inner");
  outer->add_child("inner", inner);
  EXPECT_TRUE(outer->parameters().empty());
  inner->add_parameter("weight", at::ones({2}));
  EXPECT_EQ(outer->parameters().size(), 1U);
  const at::Tensor other = at::ones({3}).set_requires_grad(true);
  inner->replace_tensor("weight", other);
  EXPECT_TRUE(outer->parameters()[0].is_same(other));
  EXPECT_EQ(nn::num_parameters(*outer), 3);
  inner->remove("weight");
  EXPECT_TRUE(outer->parameters().empty());
}

}  // namespace nn_test
}  // namespace accel::nn
