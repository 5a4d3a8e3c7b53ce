// SPDX-License-Identifier: Apache-2.0
// Schedule-free SGD and AdamW against the equations of their paper, one number at a time.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace schedule_free_test {

using tests::expect_error;

constexpr double kLr = 0.05;
constexpr double kBeta = 0.8;
constexpr double kBeta2 = 0.95;
constexpr double kEps = 1e-6;
constexpr double kDecay = 0.1;
constexpr double kPower = 0.5;
constexpr double kLrPower = 1.5;
constexpr int kWarmup = 3;
const std::vector<double> kStart = {0.5, -1.25, 2.0};

RulePtr rule(bool adamw) { return adamw ? schedule_free_adamw_rule() : schedule_free_sgd_rule(); }

GivenSettings settings(bool adamw) {
  GivenSettings given = {
      {"lr", kLr},   {adamw ? "beta1" : "momentum", kBeta}, {"weight_decay", kDecay}, {"warmup_steps", kWarmup},
      {"r", kPower}, {"weight_lr_power", kLrPower}};
  if (adamw) given.insert(given.end(), {{"beta2", kBeta2}, {"eps", kEps}});
  return given;
}

// The gradient at a point: of a loss whose minimum lies at (0.3, 0.3, ...).
double slope(double at, int step) { return (at - 0.3) * (1 + 0.5 * std::sin(step)); }
// The rate falls on the way, which the largest one so far does not.
double lr_of(int step) { return step > 5 ? kLr / 2 : kLr; }

// One number with the average x, the iterate z and the point y between them.
struct Number {
  double x, y, z;
  double squares = 0, weights = 0, largest_lr = 0;

  explicit Number(double start) : x(start), y(start), z(start) {}
  void step(int t, bool adamw) {
    const double lr = lr_of(t) * std::min(1.0, static_cast<double>(t) / kWarmup);
    double g = slope(y, t);
    if (adamw) {
      squares = kBeta2 * squares + (1 - kBeta2) * g * g;
      g /= std::sqrt(squares / (1 - std::pow(kBeta2, t))) + kEps;
    }
    z -= lr * (g + kDecay * y);
    largest_lr = std::max(largest_lr, lr);
    const double weight = std::pow(t, kPower) * std::pow(largest_lr, kLrPower);
    weights += weight;
    x += weight / weights * (z - x);
    y = (1 - kBeta) * z + kBeta * x;
  }
};

struct Trained {
  at::Tensor parameter;
  std::shared_ptr<ParameterOptimizer> optimizer;

  explicit Trained(bool adamw, at::ScalarType dtype = at::kDouble)
      : parameter(at::tensor(kStart, at::kDouble).to(dtype).set_requires_grad(true)),
        optimizer(make_optimizer(rule(adamw), settings(adamw))) {
    optimizer->add_group({parameter}, std::nullopt, std::nullopt);
  }
  void step(int t) const {
    const at::Tensor point = parameter.detach().to(at::kDouble);
    std::vector<double> slopes;
    for (int64_t i = 0; i < point.numel(); i++) slopes.push_back(slope(point[i].item<double>(), t));
    parameter.mutable_grad() = at::tensor(slopes, parameter.scalar_type());
    optimizer->set_lr(0, lr_of(t));
    EXPECT_TRUE(optimizer->step());
  }
};

void expect_near(const at::Tensor& tensor, const std::vector<Number>& numbers, double Number::*member,
                 double tolerance) {
  for (size_t i = 0; i < numbers.size(); i++)
    EXPECT_NEAR(tensor.detach()[static_cast<int64_t>(i)].item<double>(), numbers[i].*member, tolerance) << i;
}

TEST(ScheduleFree, FollowsTheEquations) {
  for (const bool adamw : {false, true})
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const double tolerance = 2e-6;  // weights and rates are kept as float32
      const Trained trained(adamw, dtype);
      std::vector<Number> numbers(kStart.begin(), kStart.end());
      for (int t = 1; t <= 12; t++) {
        trained.step(t);
        for (Number& number : numbers) number.step(t, adamw);
        expect_near(trained.parameter, numbers, &Number::y, tolerance);
        if (t % 4 != 0) continue;  // an evaluation on the way
        trained.optimizer->train(false);
        expect_near(trained.parameter, numbers, &Number::x, tolerance);
        trained.optimizer->train(true);
      }
      expect_near(trained.parameter, numbers, &Number::y, tolerance);
    }
}

TEST(ScheduleFree, SwitchesOnceEachWay) {
  const Trained trained(false);
  trained.optimizer->train(false);  // before the first step there is no average yet
  trained.optimizer->train(true);
  EXPECT_TRUE(at::equal(trained.parameter.detach(), at::tensor(kStart, at::kDouble)));
  for (int t = 1; t <= 3; t++) trained.step(t);
  trained.optimizer->train(false);
  const at::Tensor average = trained.parameter.detach().clone();
  trained.optimizer->train(false);
  EXPECT_TRUE(at::equal(trained.parameter.detach(), average));
  expect_error(Status::kInvalidState, "accel_optimizer_train", [&] { trained.optimizer->step(); });
  EXPECT_EQ(trained.optimizer->setting(0, "train_mode"), 0);
  expect_error(Status::kInvalidArgument, "accel_optimizer_train",
               [&] { trained.optimizer->set_setting(0, "train_mode", 1); });
}

TEST(ScheduleFree, AStateDictSaysWhereTheParametersAre) {
  for (const bool adamw : {false, true}) {
    const Trained trained(adamw);
    for (int t = 1; t <= 4; t++) trained.step(t);
    trained.optimizer->train(false);
    const Trained resumed(adamw);
    resumed.parameter.detach().copy_(trained.parameter.detach());
    resumed.optimizer->load_state_dict(trained.optimizer->state_dict());
    for (const Trained* each : {&trained, &resumed}) {
      each->optimizer->train(true);
      each->step(5);
    }
    EXPECT_TRUE(at::equal(trained.parameter.detach(), resumed.parameter.detach()));
  }
}

TEST(ScheduleFree, EvaluatesMasterWeights) {
  const Trained exact(true, at::kFloat), rounded(true, at::kBFloat16);
  rounded.optimizer->set_update_precision(0, UpdatePrecision::kMasterWeights);
  for (int t = 1; t <= 5; t++) {
    exact.step(t);
    rounded.parameter.mutable_grad() = exact.parameter.grad().to(at::kBFloat16);
    rounded.optimizer->set_lr(0, lr_of(t));
    rounded.optimizer->step();
  }
  for (const bool training : {false, true}) {
    exact.optimizer->train(training);
    rounded.optimizer->train(training);
    EXPECT_TRUE(at::allclose(rounded.parameter.detach().to(at::kFloat), exact.parameter.detach(), 1e-2, 1e-2));
  }
}

TEST(ScheduleFree, OthersHaveNothingToSwitch) {
  const auto sgd = make_optimizer(sgd_rule(), {{"lr", 0.1}});
  const at::Tensor parameter = at::tensor(kStart).set_requires_grad(true);
  sgd->add_group({parameter}, std::nullopt, std::nullopt);
  sgd->train(false);
  parameter.mutable_grad() = parameter.detach().clone();
  EXPECT_TRUE(sgd->step());
}

TEST(ScheduleFree, RefusesAnAverageWithoutAShare) {
  expect_error(Status::kInvalidArgument, "momentum is 0", [] {
    make_optimizer(schedule_free_sgd_rule(), {{"momentum", 0}});
  });
  expect_error(Status::kInvalidArgument, "beta1 is 1", [] {
    make_optimizer(schedule_free_adamw_rule(), {{"beta1", 1}});
  });
}

}  // namespace schedule_free_test
}  // namespace accel::optim
