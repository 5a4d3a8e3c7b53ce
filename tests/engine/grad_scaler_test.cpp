// SPDX-License-Identifier: Apache-2.0
#include "precision/grad_scaler.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "config/generated/settings/state/state.hpp"

namespace accel::precision {
namespace grad_scaler_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Status status_of(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.message();
    return error.status();
  }
  return Status::kOk;
}

at::Tensor parameter_with_gradient(const std::vector<float>& gradient) {
  at::Tensor parameter = at::zeros({static_cast<int64_t>(gradient.size())}).requires_grad_(true);
  parameter.mutable_grad() = at::tensor(gradient);
  return parameter;
}

std::shared_ptr<ScaledGradients> gradients_of(const std::shared_ptr<GradScaler>& scaler, at::Tensor parameter) {
  return ScaledGradients::create(scaler, [parameter] { return std::vector<at::Tensor>{parameter}; });
}

// DeepSpeed's rules as its documentation has them: an overflow in a row of `hysteresis` shrinks the scale, `window`
// steps without one let it grow.
class ScaleOfDeepspeed {
 public:
  ScaleOfDeepspeed(double scale, int64_t window, const BackoffRules& rules)
      : scale(scale), window_(window), rules_(rules), left_(rules.hysteresis) {}

  void update(bool overflowed) {
    if (overflowed) {
      if (left_ == 1)
        scale = std::max(scale / 2, rules_.least_scale);
      else
        left_ -= 1;
      latest_overflow_ = step_;
    } else {
      if (rules_.is_consecutive) left_ = rules_.hysteresis;
      if ((step_ - latest_overflow_) % window_ == 0) {
        if (!rules_.is_consecutive) left_ = rules_.hysteresis;
        scale *= 2;
      }
    }
    step_ += 1;
  }

  double scale;

 private:
  int64_t window_;
  BackoffRules rules_;
  int64_t left_, step_ = 0, latest_overflow_ = -1;
};

TEST(GradScalerScale, FollowsTheRulesOfDeepspeed) {
  const auto generator = at::detail::createCPUGenerator(5);
  for (const int64_t hysteresis : {1, 2, 4})
    for (const bool is_consecutive : {false, true}) {
      const BackoffRules rules{false, hysteresis, is_consecutive, 1e-30};
      GradScalerSettings settings;
      settings.init_scale = 1024;
      settings.growth_interval = 3;
      GradScaler scaler(GradScalerSettings{});
      scaler.follow(settings, rules);
      ScaleOfDeepspeed expected(1024, 3, rules);
      for (int step = 0; step < 400; step++) {
        const bool overflowed = at::rand({}, generator, at::kFloat).item<float>() < 0.3f;
        if (step == 200) {  // goes on in another one
          GradScaler other(GradScalerSettings{});
          other.follow(settings, rules);
          other.load_state_dict(scaler.state_dict());
          scaler = other;
        }
        scaler.update(overflowed, nullptr);
        expected.update(overflowed);
        ASSERT_EQ(scaler.scale(), expected.scale) << hysteresis << is_consecutive << " step " << step;
      }
    }
}

TEST(GradScalerScale, IsConstantOrHasALeast) {
  GradScalerSettings settings;
  settings.init_scale = 8;
  settings.growth_interval = 1;
  GradScaler constant(GradScalerSettings{});
  constant.follow(settings, {true, 2, false, 1});
  for (int step = 0; step < 9; step++) constant.update(step % 3 == 0, nullptr);
  EXPECT_EQ(constant.scale(), 8);

  GradScaler scaler(GradScalerSettings{});
  scaler.follow(settings, {false, 1, false, 3});
  scaler.update(true, nullptr);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.update(true, nullptr);
  EXPECT_EQ(scaler.scale(), 3);
  std::string message;
  EXPECT_EQ(status_of([&] { scaler.update(true, nullptr); }, &message), Status::kInvalidState);
  EXPECT_NE(message.find("the loss scale is 3, the least one"), std::string::npos) << message;
  scaler.update(false, nullptr);  // it can still be used
  EXPECT_EQ(scaler.scale(), 6);
}

// The numbers of LibTorch's own kernel, step by step.
TEST(GradScalerScale, GrowsAndBacksOffAsTheReference) {
  const auto generator = at::detail::createCPUGenerator(3);
  for (const int64_t interval : {1, 2, 5}) {
    GradScalerSettings settings;
    settings.growth_interval = interval;
    settings.growth_factor = 1.7;
    settings.backoff_factor = 0.3;
    GradScaler scaler(settings);
    at::Tensor scale = at::full({}, settings.init_scale.value, at::kFloat), tracker = at::zeros({}, at::kInt);
    for (int step = 0; step < 300; step++) {
      const bool overflowed = step >= 250 || at::rand({}, generator, at::kFloat).item<float>() < 0.2f;
      at::_amp_update_scale_(scale, tracker, at::full({}, overflowed ? 1.0 : 0.0, at::kFloat), settings.growth_factor,
                             settings.backoff_factor, interval);
      scaler.update(overflowed, nullptr);
      ASSERT_EQ(static_cast<float>(scaler.scale()), scale.item<float>()) << "step " << step;
      ASSERT_EQ(scaler.growth_tracker(), tracker.item<int32_t>()) << "step " << step;
    }
  }
}

TEST(GradScalerScale, StopsGrowingBeforeInfinity) {
  GradScalerSettings settings;
  settings.init_scale = 3e38;
  settings.growth_interval = 1;
  GradScaler scaler(settings);
  scaler.update(false, nullptr);
  EXPECT_EQ(static_cast<float>(scaler.scale()), 3e38f);
}

TEST(GradScalerGradients, AreUnscaledOnceAStep) {
  const auto scaler = std::make_shared<GradScaler>(GradScalerSettings());
  const at::Tensor parameter = parameter_with_gradient({65536, -32768, 0});
  const auto gradients = gradients_of(scaler, parameter);
  EXPECT_EQ(status_of([&] { gradients->unscale(); }), Status::kInvalidState);  // nothing was scaled yet
  EXPECT_EQ(scaler->scale_for_backward(), 65536);
  gradients->unscale();
  gradients->unscale();
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({1.0f, -0.5f, 0.0f})));
  EXPECT_FALSE(gradients->overflowed());
  gradients->finish(false);
  std::string message;
  EXPECT_EQ(status_of([&] { gradients->overflowed(); }, &message), Status::kInvalidState);
  EXPECT_NE(message.find("has stepped since the latest accel_backward()"), std::string::npos) << message;
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({1.0f, -0.5f, 0.0f})));
}

TEST(GradScalerGradients, ThatAreNotFiniteAreSeen) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const auto scaler = std::make_shared<GradScaler>(GradScalerSettings());
    const auto gradients = gradients_of(scaler, parameter_with_gradient({1, bad}));
    scaler->scale_for_backward();
    EXPECT_TRUE(gradients->overflowed());
    gradients->finish(true);
    EXPECT_EQ(scaler->scale(), 32768);
  }
}

// Two optimizers take their steps one after the other; the first one's overflow changes the scale.
TEST(GradScalerGradients, OfAnotherOptimizerFollowTheScale) {
  const auto scaler = std::make_shared<GradScaler>(GradScalerSettings());
  const at::Tensor first = parameter_with_gradient({kInfinity}), second = parameter_with_gradient({65536});
  const at::Tensor third = parameter_with_gradient({65536});
  const auto of_first = gradients_of(scaler, first), of_second = gradients_of(scaler, second),
             of_third = gradients_of(scaler, third);
  scaler->scale_for_backward();
  of_third->unscale();
  of_first->finish(of_first->overflowed());
  EXPECT_EQ(scaler->scale(), 32768);
  EXPECT_FALSE(of_second->overflowed());
  EXPECT_EQ(second.grad().item<float>(), 1);
  EXPECT_EQ(third.grad().item<float>(), 1);
}

TEST(GradScalerGradients, InFloat16NameTheirParameter) {
  const auto scaler = std::make_shared<GradScaler>(GradScalerSettings());
  at::Tensor half = at::zeros({2}, at::kHalf).requires_grad_(true);
  half.mutable_grad() = at::ones({2}, at::kHalf);
  const at::Tensor single = parameter_with_gradient({1});
  const auto gradients = ScaledGradients::create(scaler, [=] { return std::vector<at::Tensor>{single, half}; });
  scaler->scale_for_backward();
  std::string message;
  EXPECT_EQ(status_of([&] { gradients->unscale(); }, &message), Status::kTypeMismatch);
  EXPECT_NE(message.find("parameter 1 of shape [2] has a gradient in float16"), std::string::npos) << message;
  EXPECT_EQ(single.grad().item<float>(), 1);  // nothing was changed
}

TEST(GradScalerState, HasTheKeysOfTheReference) {
  GradScalerSettings settings;
  settings.growth_interval = 10;
  GradScaler scaler(settings), other{GradScalerSettings()};
  for (int step = 0; step < 7; step++) scaler.update(step == 3, nullptr);
  const c10::IValue state = scaler.state_dict();
  std::vector<std::string> keys;
  for (const auto& entry : state.toGenericDict()) keys.push_back(entry.key().toStringRef());
  EXPECT_EQ(keys, (std::vector<std::string>{"scale", "growth_factor", "backoff_factor", "growth_interval",
                                            "_growth_tracker"}));
  other.load_state_dict(state);
  EXPECT_EQ(other.scale(), 32768);
  EXPECT_EQ(other.growth_tracker(), 3);
  EXPECT_EQ(other.settings().growth_interval, 10);
  EXPECT_EQ(state.toGenericDict().erase("scale"), 1u);
  std::string message;
  EXPECT_EQ(status_of([&] { other.load_state_dict(state); }, &message), Status::kInvalidArgument);
  EXPECT_NE(message.find("\"scale\""), std::string::npos);
}

// Regression: a loss scale that is 0 in float32 was taken, and intervals and counts that are not whole numbers.
TEST(GradScalerState, HasNumbersThatCanBeMeant) {
  GradScaler scaler{GradScalerSettings()};
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [key, number, part] : std::vector<std::tuple<const char*, c10::IValue, const char*>>{
           {"scale", 1e-320, "\"scale\" in the state of a gradient scaler is 9.99"},
           {"scale", kNan, "is nan"},
           {"scale", -4.0, "is -4"},
           {"growth_interval", 1.5, "is 1.5; expected a whole number from 1"},
           {"growth_interval", kNan, "is nan"},
           {"growth_interval", 1e300, "is 1e+300"},
           {"_growth_tracker", -1, "is -1; expected a whole number from 0"},
           {"_growth_tracker", kInfinity, "is inf"}}) {
    auto state = scaler.state_dict().toGenericDict().copy();
    state.insert_or_assign(key, number);
    std::string message;
    EXPECT_EQ(status_of([&, &given = state] { scaler.load_state_dict(given); }, &message), Status::kInvalidArgument);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(scaler.scale(), 65536);
  }
  auto state = scaler.state_dict().toGenericDict().copy();
  state.insert_or_assign("growth_interval", 30.0);  // from a language whose numbers are all of one type
  scaler.load_state_dict(state);
  EXPECT_EQ(scaler.settings().growth_interval, 30);
}

TEST(GradScalerSettings, AreChecked) {
  const auto refused = [](void (*change)(GradScalerSettings&), const char* part) {
    GradScalerSettings settings;
    change(settings);
    std::string message;
    EXPECT_EQ(status_of([&] { GradScaler scaler(settings); }, &message), Status::kInvalidArgument);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused([](GradScalerSettings& settings) { settings.init_scale = 0; }, "init_scale is 0");
  refused([](GradScalerSettings& settings) { settings.init_scale = 1e-320; }, "expected a positive number of float32");
  refused([](GradScalerSettings& settings) { settings.init_scale = 1e39; }, "init_scale is 1e+39");
  refused([](GradScalerSettings& settings) { settings.growth_factor = 1; }, "growth_factor is 1");
  refused([](GradScalerSettings& settings) { settings.backoff_factor = 1; }, "backoff_factor is 1");
  refused([](GradScalerSettings& settings) { settings.growth_interval = 0; }, "growth_interval is 0");
}

}  // namespace grad_scaler_test
}  // namespace accel::precision
