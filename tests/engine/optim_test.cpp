// SPDX-License-Identifier: Apache-2.0
// Optimizers and clipping. Expected numbers are torch.optim's for the same gradients.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "optim/clip.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace optim_test {

using tests::expect_error;

at::Tensor new_parameter(const std::vector<float>& values) { return at::tensor(values).set_requires_grad(true); }

void set_gradient(const at::Tensor& parameter, int step) {
  auto gradient = at::empty_like(parameter, at::kFloat).detach();
  for (int64_t i = 0; i < gradient.numel(); ++i)
    gradient.mutable_data_ptr<float>()[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
  parameter.mutable_grad() = gradient;
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

void expect_near(const at::Tensor& tensor, const std::vector<float>& expected) {
  const auto values = values_of(tensor);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6) << "element " << i;
}

// Four steps from the same start with the same gradients.
at::Tensor after_four_steps(ParameterOptimizer& optimizer) {
  const auto parameter = new_parameter({0.5F, -1.25F, 2.0F});
  optimizer.add_group({parameter}, std::nullopt, std::nullopt);
  for (int step = 1; step <= 4; ++step) {
    set_gradient(parameter, step);
    EXPECT_TRUE(optimizer.step());
  }
  return parameter;
}

GivenSettings with(GivenSettings settings, const GivenSettings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

GivenSettings decayed() { return {{"lr", 0.01}, {"weight_decay", 0.1}}; }

void expect_four_steps(RulePtr rule, const GivenSettings& settings, const std::vector<float>& expected) {
  ParameterOptimizer optimizer(std::move(rule), settings);
  expect_near(after_four_steps(optimizer), expected);
}

TEST(OptimAdam, StepsAsTorch) {
  const auto adamw = [] { return adam_rule(WeightDecay::kDecoupled); };
  const auto adam = [] { return adam_rule(WeightDecay::kInGradient); };
  expect_four_steps(adamw(), decayed(), {0.466763437F, -1.25711012F, 1.98452151F});
  expect_four_steps(adamw(), with(decayed(), {{"maximize", 1}}), {0.529242694F, -1.23290491F, 1.99950278F});
  expect_four_steps(adamw(), with(decayed(), {{"amsgrad", 1}, {"beta2", 0.5}}),
                    {0.468163222F, -1.25706565F, 1.98427939F});
  expect_four_steps(adam(), decayed(), {0.467977166F, -1.25735676F, 1.97485948F});
  expect_four_steps(adam(), {{"lr", 0.02}, {"beta1", 0.5}, {"beta2", 0.7}, {"eps", 1e-3}},
                    {0.451337814F, -1.26774168F, 1.99098253F});
}

TEST(OptimSgd, StepsAsTorch) {
  const GivenSettings momentum = {{"lr", 0.1}, {"momentum", 0.9}};
  expect_four_steps(sgd_rule(), {{"lr", 0.1}}, {0.386491418F, -1.33624375F, 2.02627492F});
  expect_four_steps(sgd_rule(), with(momentum, {{"weight_decay", 0.01}}), {0.00966734439F, -1.39166164F, 1.98453724F});
  expect_four_steps(sgd_rule(), with(momentum, {{"nesterov", 1}}), {-0.05174914F, -1.47435856F, 2.02856565F});
  expect_four_steps(sgd_rule(), with(momentum, {{"dampening", 0.5}, {"maximize", 1}}),
                    {0.888157904F, -1.01691592F, 2.02299309F});
}

TEST(OptimSgd, ParameterThatJoinsLaterStartsItsOwnMomentum) {
  ParameterOptimizer optimizer(sgd_rule(), {{"lr", 0.1}, {"momentum", 0.9}});
  const auto early = new_parameter({0});
  const auto late = new_parameter({0});
  optimizer.add_group({early, late}, std::nullopt, std::nullopt);
  early.mutable_grad() = at::ones({1});
  optimizer.step();
  late.mutable_grad() = at::ones({1});
  optimizer.step();
  expect_near(early, {-0.1F - 0.19F});
  expect_near(late, {-0.1F});
}

TEST(OptimOptimizer, ParametersWithoutGradientStay) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto used = new_parameter({1});
  const auto unused = new_parameter({1});
  optimizer.add_group({unused, used}, std::nullopt, std::nullopt);
  set_gradient(used, 1);
  optimizer.step();
  EXPECT_EQ(values_of(unused)[0], 1);
  EXPECT_NE(values_of(used)[0], 1);
  const auto state = optimizer.state_dict().toGenericDict().at("state").toGenericDict();
  EXPECT_FALSE(state.contains(int64_t{0}));
  EXPECT_TRUE(state.contains(int64_t{1}));
}

TEST(OptimOptimizer, GradientOfAnotherLayoutIsReadByPosition) {
  ParameterOptimizer straight(adam_rule(WeightDecay::kDecoupled), decayed());
  ParameterOptimizer transposed(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto a = at::ones({2, 3}).set_requires_grad(true);
  const auto b = at::ones({2, 3}).set_requires_grad(true);
  straight.add_group({a}, std::nullopt, std::nullopt);
  transposed.add_group({b}, std::nullopt, std::nullopt);
  const auto gradient = at::arange(6, at::kFloat).reshape({2, 3}) - 2.5;
  a.mutable_grad() = gradient;
  b.mutable_grad() = gradient.t().contiguous().t();
  straight.step();
  transposed.step();
  EXPECT_TRUE(at::equal(a, b));
}

TEST(OptimOptimizer, MixedDtypesInOneGroup) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto single = at::ones({3}).set_requires_grad(true);
  const auto twofold = at::ones({3}, at::kDouble).set_requires_grad(true);
  const auto last = at::ones({3}).set_requires_grad(true);
  optimizer.add_group({single, twofold, last}, std::nullopt, std::nullopt);
  for (const auto& parameter : {single, twofold, last}) parameter.mutable_grad() = at::ones_like(parameter).detach();
  optimizer.step();
  EXPECT_TRUE(at::equal(single, last));
  EXPECT_TRUE(at::allclose(single.to(at::kDouble), twofold, 1e-6));
}

TEST(OptimOptimizer, StepChangesTheVersionThatAutogradChecks) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto parameter = new_parameter({1, 2});
  optimizer.add_group({parameter}, std::nullopt, std::nullopt);
  const auto before = parameter._version();
  set_gradient(parameter, 1);
  optimizer.step();
  EXPECT_GT(parameter._version(), before);
}

TEST(OptimOptimizer, ZeroGradFillsOrDropsGradients) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto bucket = at::ones({4});
  const auto parameter = new_parameter({1, 1});
  optimizer.add_group({parameter}, std::nullopt, std::nullopt);
  parameter.mutable_grad() = bucket.narrow(0, 1, 2);
  optimizer.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(values_of(bucket), (std::vector<float>{1, 0, 0, 1}));
  EXPECT_EQ(parameter.grad().const_data_ptr(), bucket.const_data_ptr<float>() + 1);
  optimizer.zero_grad(/*set_to_none=*/true);
  EXPECT_FALSE(parameter.grad().defined());
}

// The numbers are torch.optim.AdamW's: without a gradient neither momentum nor decay moves a parameter.
// Regression: `zero_grad()` left zeros, with which momentum and weight decay moved parameters on that no backward had
// reached.
// Regression: a parameter that was frozen during training moved on.
TEST(OptimOptimizer, WhatNoBackwardReachesStaysAsItIs) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), {{"lr", 0.1}, {"weight_decay", 0.1}});
  const auto used = new_parameter({1});
  const auto idle = new_parameter({1});
  const auto frozen = new_parameter({1});
  optimizer.add_group({used, idle, frozen}, std::nullopt, std::nullopt);
  for (int step = 0; step < 3; ++step) {
    used.mutable_grad() = at::ones({1});
    if (step == 0) idle.mutable_grad() = at::ones({1});
    frozen.mutable_grad() = at::ones({1});
    if (step == 1) frozen.set_requires_grad(false);
    optimizer.step();
    optimizer.zero_grad(/*set_to_none=*/true);
  }
  expect_near(used, {0.673289F});
  expect_near(idle, {0.89F});
  expect_near(frozen, {0.89F});
}

TEST(OptimOptimizer, GroupsHaveSettingsOfTheirOwn) {
  ParameterOptimizer optimizer(sgd_rule(), {{"lr", 0.5}});
  const auto first = new_parameter({1});
  const auto second = new_parameter({1});
  optimizer.add_group({first}, std::nullopt, std::nullopt);
  optimizer.add_group({second}, 0.25, 0.0);
  optimizer.set_lr(0, 0.125);
  EXPECT_EQ(optimizer.lr(0), 0.125);
  EXPECT_EQ(optimizer.lr(1), 0.25);
  for (const auto& parameter : {first, second}) parameter.mutable_grad() = at::ones({1});
  optimizer.step();
  expect_near(first, {0.875F});
  expect_near(second, {0.75F});
}

TEST(OptimOptimizer, RefusesWhatItCannotUpdate) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto parameter = new_parameter({1, 2});
  optimizer.add_group({parameter}, std::nullopt, std::nullopt);
  const auto add = [&](std::vector<at::Tensor> parameters, std::optional<double> lr = std::nullopt) {
    optimizer.add_group(std::move(parameters), lr, std::nullopt);
  };
  expect_error(Status::kInvalidArgument, "already", [&] { add({parameter}); });
  const auto twice = new_parameter({1});
  expect_error(Status::kInvalidArgument, "each one once", [&] { add({twice, twice}); });
  expect_error(Status::kInvalidArgument, "leaf", [&] { add({parameter * 2}); });
  expect_error(Status::kInvalidArgument, "floating", [&] { add({at::ones({2}, at::kLong)}); });
  expect_error(Status::kInvalidArgument, "gaps", [&] { add({at::ones({4, 4}).narrow(1, 0, 2)}); });
  expect_error(Status::kInvalidArgument, "lr is -1", [&] { add({new_parameter({1})}, -1.0); });
  expect_error(Status::kNotFound, "group 1", [&] { optimizer.set_lr(1, 0.1); });
  expect_error(Status::kInvalidArgument, "lr is nan", [&] { optimizer.set_lr(0, std::nan("")); });
  EXPECT_EQ(optimizer.groups().size(), 1);

  expect_error(Status::kInvalidArgument, "beta1 is 1", [&] {
    make_optimizer(adam_rule(WeightDecay::kInGradient), {{"beta1", 1}});
  });
  expect_error(Status::kInvalidArgument, "nesterov", [&] { make_optimizer(sgd_rule(), {{"nesterov", 1}}); });
  expect_error(Status::kNotFound, "no setting \"beta3\"", [&] { optimizer.set_setting(0, "beta3", 1); });
  expect_error(Status::kInvalidArgument, "beta2 is 1", [&] { optimizer.set_setting(0, "beta2", 1); });
  EXPECT_EQ(optimizer.setting(0, "beta2"), 0.999);
}

TEST(OptimOptimizer, SparseGradientChangesNothing) {
  ParameterOptimizer optimizer(sgd_rule(), {});
  const auto dense = new_parameter({1, 1});
  const auto sparse = at::ones({2, 2}).set_requires_grad(true);
  optimizer.add_group({dense, sparse}, std::nullopt, std::nullopt);
  set_gradient(dense, 1);
  sparse.mutable_grad() = at::ones({2, 2}).to_sparse();
  expect_error(Status::kUnsupported, "parameter 1 has a sparse gradient", [&] { optimizer.step(); });
  EXPECT_EQ(values_of(dense), (std::vector<float>{1, 1}));
}

TEST(OptimStateDict, HasTheKeysOfTorch) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  const auto parameter = after_four_steps(optimizer);
  const auto dict = optimizer.state_dict().toGenericDict();
  const auto state = dict.at("state").toGenericDict().at(int64_t{0}).toGenericDict();
  EXPECT_EQ(state.at("step").toTensor().item<float>(), 4);
  EXPECT_EQ(state.at("step").toTensor().dim(), 0);
  EXPECT_EQ(state.at("exp_avg").toTensor().sizes(), parameter.sizes());
  EXPECT_EQ(state.at("exp_avg_sq").toTensor().sizes(), parameter.sizes());
  const auto group = dict.at("param_groups").toListRef()[0].toGenericDict();
  EXPECT_EQ(group.at("lr").toDouble(), 0.01);
  EXPECT_EQ(group.at("betas").toListRef()[1].toDouble(), 0.999);
  EXPECT_EQ(group.at("params").toListRef()[0].toInt(), 0);
  for (const char* key :
       {"eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused"})
    EXPECT_TRUE(group.contains(key)) << key;
}

// Interrupted and resumed, against straight on.
template <typename Make>
void check_resume(Make&& make) {
  const auto one = new_parameter({0.5F, -1.25F});
  const auto two = new_parameter({3.0F});
  auto straight = make();
  straight->add_group({one}, std::nullopt, std::nullopt);
  straight->add_group({two}, 0.3, std::nullopt);
  const auto advance = [](Optimizer& optimizer, const at::Tensor& a, const at::Tensor& b, int from, int to) {
    for (int step = from; step <= to; ++step) {
      set_gradient(a, step);
      set_gradient(b, step);
      optimizer.step();
    }
  };
  advance(*straight, one, two, 1, 3);
  const auto one_copy = one.detach().clone().set_requires_grad(true);
  const auto two_copy = two.detach().clone().set_requires_grad(true);
  auto resumed = make();
  resumed->add_group({one_copy}, 0.7, std::nullopt);
  resumed->add_group({two_copy}, 0.7, std::nullopt);
  resumed->load_state_dict(straight->state_dict());
  advance(*straight, one, two, 4, 6);
  advance(*resumed, one_copy, two_copy, 4, 6);
  EXPECT_TRUE(at::equal(one, one_copy));
  EXPECT_TRUE(at::equal(two, two_copy));
}

TEST(OptimStateDict, ResumesBitExactly) {
  check_resume([] { return make_optimizer(adam_rule(WeightDecay::kDecoupled), with(decayed(), {{"amsgrad", 1}})); });
  check_resume([] { return make_optimizer(sgd_rule(), {{"momentum", 0.9}}); });
  check_resume([] { return make_optimizer(nadam_rule(), decayed()); });
  check_resume([] { return make_optimizer(rmsprop_rule(), {{"momentum", 0.9}, {"centered", 1}}); });
  check_resume([] { return make_optimizer(adafactor_rule()); });
  check_resume([] { return make_optimizer(lamb_rule()); });
}

TEST(OptimStateDict, WrongOnesChangeNothing) {
  ParameterOptimizer optimizer(adam_rule(WeightDecay::kDecoupled), decayed());
  after_four_steps(optimizer);
  const auto before =
      tree::map_tensors(optimizer.state_dict(), [](const at::Tensor& tensor) { return tensor.clone(); });
  const auto broken = [&](const std::function<void(Map&)>& change) {
    auto dict = tree::map_tensors(before, [](const at::Tensor& tensor) { return tensor.clone(); }).toGenericDict();
    change(dict);
    return c10::IValue(dict);
  };
  const auto group_of = [](Map& dict) { return dict.at("param_groups").toListRef()[0].toGenericDict(); };
  const auto state_of = [](Map& dict) { return dict.at("state").toGenericDict().at(int64_t{0}).toGenericDict(); };
  const auto drop = [](const Map& map, const char* key) { EXPECT_EQ(map.erase(key), 1); };
  const auto refused = [&](Status status, const std::string& part, const std::function<void(Map&)>& change) {
    expect_error(status, part, [&] { optimizer.load_state_dict(broken(change)); });
    EXPECT_TRUE(tree::equal(optimizer.state_dict(), before)) << part;
  };
  refused(Status::kInvalidArgument, "param_groups", [&](Map& dict) { drop(dict, "param_groups"); });
  refused(Status::kInvalidArgument, "0 parameter groups",
          [](Map& dict) { dict.insert_or_assign("param_groups", tree::new_list()); });
  refused(Status::kInvalidArgument, "\"lr\"", [&](Map& dict) { group_of(dict).insert_or_assign("lr", "high"); });
  refused(Status::kInvalidArgument, "lr is -1", [&](Map& dict) { group_of(dict).insert_or_assign("lr", -1.0); });
  refused(Status::kInvalidArgument, "betas", [&](Map& dict) { group_of(dict).insert_or_assign("betas", 0.5); });
  refused(Status::kInvalidArgument, "0 parameters",
          [&](Map& dict) { group_of(dict).insert_or_assign("params", tree::new_list()); });
  refused(Status::kInvalidArgument, "\"state\"", [&](Map& dict) { drop(dict, "state"); });
  refused(Status::kInvalidArgument, "parameter \"1\"",
          [](Map& dict) { dict.at("state").toGenericDict().insert(int64_t{1}, tree::new_map()); });
  refused(Status::kInvalidArgument, "\"step\"", [&](Map& dict) { drop(state_of(dict), "step"); });
  refused(Status::kInvalidArgument, "\"exp_avg\"", [&](Map& dict) { drop(state_of(dict), "exp_avg"); });
  refused(Status::kShapeMismatch, "\"exp_avg_sq\" of parameter 0 has shape [5]",
          [&](Map& dict) { state_of(dict).insert_or_assign("exp_avg_sq", at::zeros({5})); });
  expect_error(Status::kInvalidArgument, "expected a map", [&] { optimizer.load_state_dict(3); });
}

std::vector<at::Tensor> clip_parameters() {
  const auto a = new_parameter({0, 0});
  const auto b = new_parameter({0, 0, 0});
  a.mutable_grad() = at::tensor(std::vector<float>{3, -4});
  b.mutable_grad() = at::tensor(std::vector<float>{12, 0, -1});
  return {a, new_parameter({1}), b};
}

TEST(OptimClip, NormAsTorch) {
  struct Expected {
    double norm_type;
    float norm;
    std::vector<float> a;
    std::vector<float> b;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const Expected cases[] = {
      {2.0, 13.0384045F, {0.345134228F, -0.460178971F}, {1.38053691F, 0, -0.115044743F}},
      {infinity, 12, {0.37499997F, -0.49999997F}, {1.49999988F, 0, -0.124999993F}},
      {1.0, 20, {0.224999994F, -0.299999982F}, {0.899999976F, 0, -0.0749999955F}},
      {3.0, 12.2092934F, {0.368571669F, -0.491428882F}, {1.47428668F, 0, -0.12285722F}},
  };
  for (const auto& expected : cases) {
    const auto parameters = clip_parameters();
    EXPECT_NEAR(clip_gradients_by_norm(parameters, 1.5, expected.norm_type).item<float>(), expected.norm, 1e-5);
    expect_near(parameters[0].grad(), expected.a);
    expect_near(parameters[2].grad(), expected.b);
  }
}

TEST(OptimClip, SmallNormsStayExactly) {
  const auto parameters = clip_parameters();
  clip_gradients_by_norm(parameters, 100);
  EXPECT_EQ(values_of(parameters[0].grad()), (std::vector<float>{3, -4}));
  EXPECT_EQ(clip_gradients_by_norm({new_parameter({1})}, 1).item<float>(), 0);
}

TEST(OptimClip, ValueCutsElements) {
  const auto parameters = clip_parameters();
  clip_gradients_by_value(parameters, 3.5);
  EXPECT_EQ(values_of(parameters[0].grad()), (std::vector<float>{3, -3.5}));
  EXPECT_EQ(values_of(parameters[2].grad()), (std::vector<float>{3.5, 0, -1}));
  expect_error(Status::kInvalidArgument, "clip_value is -1", [&] { clip_gradients_by_value(parameters, -1); });
  expect_error(Status::kInvalidArgument, "max_norm is -1", [&] { clip_gradients_by_norm(parameters, -1); });
  expect_error(Status::kInvalidArgument, "norm_type is 0", [&] { clip_gradients_by_norm(parameters, 1, 0); });
}

}  // namespace optim_test
}  // namespace accel::optim
