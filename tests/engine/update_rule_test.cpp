// SPDX-License-Identifier: Apache-2.0
// What the kinds of optimizers share and what some have alone: update precision, moments of a byte, the host's update,
// LOMO and AdaLomo, closures, norms of many parameters.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "optim/clip.hpp"
#include "optim/lomo.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace update_rule_test {

using tests::expect_error;

using Optimizer = ParameterOptimizer;

at::Tensor random(at::IntArrayRef shape, int64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

void step(Optimizer& optimizer, const at::Tensor& parameter, int64_t seed) {
  parameter.mutable_grad() = random(parameter.sizes(), seed).to(parameter.scalar_type());
  optimizer.step();
}

c10::impl::GenericDict first_state(const Optimizer& optimizer) {
  return optimizer.state_dict().toGenericDict().at("state").toGenericDict().at(int64_t{0}).toGenericDict();
}

struct Kind {
  const char* name;
  RulePtr (*make)();
};
RulePtr adamw() { return adam_rule(WeightDecay::kDecoupled); }
const Kind kKinds[] = {{"sgd", sgd_rule},         {"adamw", adamw},
                       {"adagrad", adagrad_rule}, {"rmsprop", rmsprop_rule},
                       {"adamax", adamax_rule},   {"nadam", nadam_rule},
                       {"radam", radam_rule},     {"lion", lion_rule},
                       {"lamb", lamb_rule},       {"adafactor", adafactor_rule},
                       {"muon", muon_rule}};

TEST(UpdateRulePrecision, MasterWeightsStepAsFloat32) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const at::Tensor start = random({6, 5}, 1).to(at::kBFloat16);
    const auto full = start.to(at::kFloat).set_requires_grad(true);
    const auto reduced = start.clone().set_requires_grad(true);
    Optimizer straight(kind.make(), {});
    Optimizer master(kind.make(), {});
    straight.add_group({full}, std::nullopt, std::nullopt);
    master.add_group({reduced}, std::nullopt, std::nullopt);
    master.set_update_precision(0, UpdatePrecision::kMasterWeights);
    for (int64_t i = 0; i < 5; ++i) {
      reduced.mutable_grad() = random({6, 5}, 10 + i).to(at::kBFloat16);
      full.mutable_grad() = reduced.grad().to(at::kFloat);
      straight.step();
      master.step();
    }
    EXPECT_TRUE(at::equal(first_state(master).at("master_param").toTensor(), full));
    EXPECT_TRUE(at::equal(reduced, full.to(at::kBFloat16)));
  }
}

TEST(UpdateRulePrecision, StochasticRoundingKeepsSmallSteps) {
  for (const Kind& kind : {Kind{"sgd", sgd_rule}, Kind{"muon", muon_rule}}) {
    SCOPED_TRACE(kind.name);
    const bool is_muon = std::string(kind.name) == "muon";
    const auto run = [&](UpdatePrecision precision) {
      const auto parameter = at::full({64, 64}, 1, at::kBFloat16).set_requires_grad(true);
      // Steps of 2^-12, a sixteenth of what bfloat16 tells apart above 1 and an eighth of that below.
      Optimizer optimizer(kind.make(), {{"lr", is_muon ? 1e-3 : 0x1p-12}, {"weight_decay", is_muon ? 0.25 : 0}});
      optimizer.add_group({parameter}, std::nullopt, std::nullopt);
      optimizer.set_update_precision(0, precision);
      for (int i = 0; i < 64; ++i) {
        parameter.mutable_grad() = is_muon ? at::zeros_like(parameter) : at::ones_like(parameter);
        optimizer.step();
      }
      return parameter.detach().to(at::kFloat);
    };
    EXPECT_EQ(run(UpdatePrecision::kAsStored).mean().item<float>(), 1);
    const at::Tensor found = run(UpdatePrecision::kStochasticRounding);
    const double expected = is_muon ? std::pow(1 - 0.25e-3, 64) : 1 - 64 * 0x1p-12;
    EXPECT_NEAR(found.mean().item<double>(), expected, 1e-3);
    EXPECT_TRUE(at::equal(found, run(UpdatePrecision::kStochasticRounding))) << "runs repeat";
  }
}

TEST(UpdateRulePrecision, ChangesOnTheWayAndResumes) {
  const auto parameter = random({50}, 1).to(at::kBFloat16).set_requires_grad(true);
  Optimizer optimizer(adamw(), {{"lr", 0.01}});
  optimizer.add_group({parameter}, std::nullopt, std::nullopt);
  step(optimizer, parameter, 1);
  EXPECT_EQ(first_state(optimizer).at("exp_avg").toTensor().scalar_type(), at::kBFloat16);
  for (const auto precision : {UpdatePrecision::kMasterWeights, UpdatePrecision::kStochasticRounding}) {
    optimizer.set_update_precision(0, precision);
    step(optimizer, parameter, 2);
    EXPECT_EQ(first_state(optimizer).at("exp_avg").toTensor().scalar_type(), at::kFloat);

    const auto copy = parameter.detach().clone().set_requires_grad(true);
    Optimizer resumed(adamw(), {});
    resumed.add_group({copy}, std::nullopt, std::nullopt);
    resumed.load_state_dict(optimizer.state_dict());
    step(optimizer, parameter, 3);
    step(resumed, copy, 3);
    EXPECT_TRUE(at::equal(parameter, copy));
    EXPECT_TRUE(tree::equal(resumed.state_dict(), optimizer.state_dict()));
  }
  optimizer.set_update_precision(0, UpdatePrecision::kAsStored);
  step(optimizer, parameter, 4);
  EXPECT_FALSE(first_state(optimizer).contains("master_param"));
  EXPECT_EQ(first_state(optimizer).at("exp_avg").toTensor().scalar_type(), at::kBFloat16);

  Optimizer half(adamw(), {});
  half.add_group({at::ones({2}, at::kHalf).set_requires_grad(true)}, std::nullopt, std::nullopt);
  expect_error(Status::kInvalidArgument, "float16",
               [&] { half.set_update_precision(0, UpdatePrecision::kStochasticRounding); });
}

TEST(UpdateRule8Bit, FollowsAdamW) {
  // A quadratic with curvatures between 0.01 and 100: both are to come to its minimum in the same time.
  const at::Tensor curvature = at::pow(10, at::linspace(-2, 2, 8192));
  const at::Tensor goal = random({8192}, 1);
  const auto loss_after = [&](RulePtr rule, int steps) {
    const auto parameter = at::zeros({8192}).set_requires_grad(true);
    Optimizer optimizer(std::move(rule), {{"lr", 0.02}, {"weight_decay", 0}});
    optimizer.add_group({parameter}, std::nullopt, std::nullopt);
    for (int i = 0; i < steps; ++i) {
      parameter.mutable_grad() = (parameter.detach() - goal) * curvature + random({8192}, 100 + i) * 0.1;
      optimizer.step();
    }
    return (parameter.detach() - goal).square().mean().item<double>();
  };
  for (const int steps : {20, 100, 300}) {
    const double full = loss_after(adamw(), steps);
    const double bytes = loss_after(adamw_8bit_rule(), steps);
    EXPECT_NEAR(bytes / full, 1, 0.15) << steps << " steps: " << full << " and " << bytes;
  }
}

TEST(UpdateRule8Bit, StateIsSmallAndPortable) {
  const auto parameter = random({100, 100}, 1).set_requires_grad(true);
  const auto bias = random({100}, 2).set_requires_grad(true);
  Optimizer optimizer(adamw_8bit_rule(), {{"lr", 0.01}});
  optimizer.add_group({parameter, bias}, std::nullopt, std::nullopt);
  EXPECT_EQ(optimizer.state_bytes(), 0);
  for (int64_t i = 0; i < 3; ++i) {
    bias.mutable_grad() = random({100}, 50 + i);
    step(optimizer, parameter, i);
  }
  const int64_t full = 2 * 4 * (parameter.numel() + bias.numel());
  EXPECT_LT(optimizer.state_bytes(), full / 3.7);  // the bias keeps float32

  const auto state_dict = tree::map_tensors(optimizer.state_dict(), [](const at::Tensor& t) { return t.clone(); });
  const auto copy = parameter.detach().clone().set_requires_grad(true);
  const auto bias_copy = bias.detach().clone().set_requires_grad(true);
  Optimizer resumed(adamw_8bit_rule(), {});
  resumed.add_group({copy, bias_copy}, std::nullopt, std::nullopt);
  resumed.load_state_dict(state_dict);
  EXPECT_TRUE(tree::equal(resumed.state_dict(), state_dict));
  step(optimizer, parameter, 9);
  step(resumed, copy, 9);
  EXPECT_TRUE(at::equal(parameter, copy));

  const auto full_copy = parameter.detach().clone().set_requires_grad(true);
  const auto bias_full = bias.detach().clone().set_requires_grad(true);
  Optimizer plain(adamw(), {});
  plain.add_group({full_copy, bias_full}, std::nullopt, std::nullopt);
  plain.load_state_dict(optimizer.state_dict());
  EXPECT_TRUE(at::equal(first_state(plain).at("exp_avg").toTensor(), first_state(optimizer).at("exp_avg").toTensor()));
}

TEST(UpdateRule8Bit, RefusesWhatItCannotDo) {
  expect_error(Status::kInvalidArgument, "amsgrad", [] { make_optimizer(adamw_8bit_rule(), {{"amsgrad", 1}}); });
  const auto twofold = at::ones({2}, at::kDouble).set_requires_grad(true);
  expect_error(Status::kUnsupported, "parameter 0",
               [&] { make_optimizer(adamw_8bit_rule())->add_group({twofold}, std::nullopt, std::nullopt); });
}

TEST(UpdateRuleAdafactor, KernelsStepAsOperators) {
  for (const GivenSettings& settings :
       {GivenSettings{}, GivenSettings{{"maximize", 1}, {"weight_decay", 0.1}, {"d", 1.5}, {"eps1", 0.5}}}) {
    const auto matrix = random({130, 70}, 1).set_requires_grad(true);
    const auto block = matrix.detach().clone().unsqueeze(0).set_requires_grad(true);  // of three dimensions: no kernels
    Optimizer by_kernels(adafactor_rule(), settings);
    Optimizer by_operators(adafactor_rule(), settings);
    by_kernels.add_group({matrix}, std::nullopt, std::nullopt);
    by_operators.add_group({block}, std::nullopt, std::nullopt);
    for (int64_t i = 0; i < 4; ++i) {
      matrix.mutable_grad() = random({130, 70}, 10 + i) * at::logspace(-3, 1, 70);
      block.mutable_grad() = matrix.grad().unsqueeze(0);
      by_kernels.step();
      by_operators.step();
    }
    EXPECT_TRUE(at::allclose(matrix, block.squeeze(0), 2e-6, 1e-6));
    for (const char* key : {"row_var", "col_var"})
      EXPECT_TRUE(at::allclose(first_state(by_kernels).at(key).toTensor(),
                               first_state(by_operators).at(key).toTensor().squeeze(0), 1e-5, 1e-12))
          << key;
  }
}

TEST(UpdateRuleMuon, TakesMatricesOnly) {
  const auto optimizer = make_optimizer(muon_rule());
  const auto matrix = at::ones({2, 2}).set_requires_grad(true);
  const auto bias = at::ones({2}).set_requires_grad(true);
  expect_error(Status::kInvalidArgument, "parameter 1", [&] {
    optimizer->add_group({matrix, bias}, std::nullopt, std::nullopt);
  });
  EXPECT_TRUE(optimizer->groups().empty());
  expect_error(Status::kInvalidArgument, "ns_steps is 100", [] { make_optimizer(muon_rule(), {{"ns_steps", 100}}); });
}

TEST(UpdateRuleHost, HasStatesGroupsAndStateDicts) {
  std::vector<int64_t> steps;
  const auto rule = [&] {
    return callback_rule({"velocity"}, [&](const CallbackUpdate& update) {
      steps.push_back(update.step);
      at::Tensor velocity = update.states[0];
      velocity.mul_(0.9).add_(update.gradient);
      at::Tensor(update.parameter).sub_(velocity, update.lr);
    });
  };
  const auto own = random({20}, 1).set_requires_grad(true);
  const auto expected = own.detach().clone().set_requires_grad(true);
  Optimizer optimizer(rule(), {{"lr", 0.1}});
  Optimizer sgd(sgd_rule(), {{"lr", 0.1}, {"momentum", 0.9}});
  optimizer.add_group({own}, std::nullopt, std::nullopt);
  sgd.add_group({expected}, std::nullopt, std::nullopt);
  for (int64_t i = 0; i < 3; ++i) {
    step(optimizer, own, i);
    step(sgd, expected, i);
  }
  EXPECT_TRUE(at::allclose(own, expected, 1e-6, 1e-6));
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3}));

  Optimizer resumed(rule(), {});
  resumed.add_group({expected}, std::nullopt, std::nullopt);
  resumed.load_state_dict(optimizer.state_dict());
  step(resumed, expected, 4);
  EXPECT_EQ(steps.back(), 4);
  EXPECT_EQ(resumed.lr(0), 0.1);

  const auto ignore = [](const CallbackUpdate&) {};
  expect_error(Status::kInvalidArgument, "\"a\" is taken", [&] { callback_rule({"a", "a"}, ignore); });
  expect_error(Status::kInvalidArgument, "\"step\"", [&] { callback_rule({"step"}, ignore); });
}

// A chain of layers, whose second weight is used twice.
struct Chain {
  std::vector<at::Tensor> weights;
  at::Tensor input = random({4, 6}, 9);

  Chain() {
    for (int64_t i = 0; i < 3; ++i) weights.push_back((random({6, 6}, i) * 0.5).set_requires_grad(true));
  }
  at::Tensor loss() const {
    at::Tensor x = at::tanh(at::mm(input, weights[0]));
    x = at::tanh(at::mm(at::mm(x, weights[1]), weights[1]));
    return at::mm(x, weights[2]).square().mean();
  }
};

void expect_lomo_as_sgd(const GivenSettings& settings, double max_norm, double max_value) {
  const Chain own;
  const Chain expected;
  const auto lomo = make_optimizer(lomo_rule(), settings);
  Optimizer sgd(sgd_rule(), {{"lr", 0.2}});
  lomo->add_group(own.weights, std::nullopt, std::nullopt);
  sgd.add_group(expected.weights, std::nullopt, std::nullopt);
  for (int i = 0; i < 3; ++i) {
    lomo_backward({lomo}, own.loss(), 0.2);
    EXPECT_TRUE(lomo->step());
    expected.loss().backward();
    if (max_norm > 0) clip_gradients_by_norm(expected.weights, max_norm);
    if (max_value > 0) clip_gradients_by_value(expected.weights, max_value);
    sgd.step();
    sgd.zero_grad(/*set_to_none=*/true);
    for (size_t k = 0; k < own.weights.size(); ++k) {
      EXPECT_TRUE(at::allclose(own.weights[k], expected.weights[k], 1e-6, 1e-7)) << "weight " << k;
      EXPECT_FALSE(own.weights[k].grad().defined());
    }
  }
  EXPECT_EQ(lomo->lr(0), 1e-3) << "the given rate is that of the call alone";
}

TEST(UpdateRuleLomo, BackwardUpdatesAsSgd) {
  expect_lomo_as_sgd({}, 0, 0);
  expect_lomo_as_sgd({{"clip_grad_norm", 0.01}}, 0.01, 0);
  expect_lomo_as_sgd({{"clip_grad_value", 0.002}}, 0, 0.002);
}

// The paper's algorithm on a matrix or a vector, by plain operators in double.
struct AdaLomoByOperators {
  at::Tensor weight, rows, columns, squares;
  int steps = 0;

  void step(const at::Tensor& g, double lr, double decay, double threshold) {
    const double kept = 1 - std::pow(++steps, -0.8);
    const at::Tensor square = g * g + 1e-30;
    const auto follow = [&](at::Tensor& mean, const at::Tensor& now) {
      mean = mean.defined() ? mean * kept + now * (1 - kept) : now * (1 - kept);
    };
    at::Tensor update;
    if (g.dim() == 2) {
      follow(rows, square.mean(1));
      follow(columns, square.mean(0));
      update = g / (rows.unsqueeze(1) * columns.unsqueeze(0) / rows.mean()).sqrt();
    } else {
      follow(squares, square);
      update = g / squares.sqrt();
    }
    const auto size = [](const at::Tensor& t) { return t.square().mean().sqrt().item<double>(); };
    const double rate = lr * std::max(1e-3, size(weight));
    weight = weight * (1 - rate * decay) - update * (rate / std::max(1.0, size(update) / threshold));
  }
};

TEST(UpdateRuleLomo, AdaLomoFollowsThePaper) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double tolerance = dtype == at::kBFloat16 ? 2e-2 : 1e-5;
    const at::Tensor matrix = random({6, 4}, 1).to(dtype).set_requires_grad(true);
    const at::Tensor vector = random({4}, 2).to(dtype).set_requires_grad(true);
    const auto adalomo = make_optimizer(adalomo_rule(), {{"lr", 0.1}, {"weight_decay", 0.2}, {"clip_threshold", 0.7}});
    adalomo->add_group({matrix, vector}, std::nullopt, std::nullopt);
    AdaLomoByOperators expected[] = {{matrix.detach().clone().to(at::kDouble), {}, {}, {}},
                                     {vector.detach().clone().to(at::kDouble), {}, {}, {}}};
    for (int step = 0; step < 5; ++step) {
      const at::Tensor factors[] = {random({6, 4}, 10 + step), random({4}, 20 + step)};
      lomo_backward({adalomo}, (matrix * factors[0].to(dtype)).sum() + (vector * factors[1].to(dtype)).sum(), {});
      for (size_t i = 0; i < 2; ++i) expected[i].step(factors[i].to(dtype).to(at::kDouble), 0.1, 0.2, 0.7);
      EXPECT_TRUE(at::allclose(matrix.detach().to(at::kDouble), expected[0].weight, tolerance, tolerance)) << step;
      EXPECT_TRUE(at::allclose(vector.detach().to(at::kDouble), expected[1].weight, tolerance, tolerance)) << step;
      EXPECT_FALSE(matrix.grad().defined());
    }
    const auto state = first_state(*adalomo);
    EXPECT_EQ(state.at("exp_avg_sq_row").toTensor().scalar_type(), dtype == at::kDouble ? at::kDouble : at::kFloat);
    const auto resumed = make_optimizer(adalomo_rule());
    const at::Tensor copies[] = {matrix.detach().clone().set_requires_grad(true),
                                 vector.detach().clone().set_requires_grad(true)};
    resumed->add_group({copies[0], copies[1]}, std::nullopt, std::nullopt);
    resumed->load_state_dict(adalomo->state_dict());
    lomo_backward({adalomo}, matrix.square().sum() + vector.square().sum(), {});
    lomo_backward({resumed}, copies[0].square().sum() + copies[1].square().sum(), {});
    EXPECT_TRUE(at::equal(matrix, copies[0]) && at::equal(vector, copies[1]));
  }
  expect_error(Status::kInvalidArgument, "clip_threshold is 0", [] {
    make_optimizer(adalomo_rule(), {{"clip_threshold", 0}});
  });
}

TEST(UpdateRuleClosure, IsCalledBeforeTheUpdateWhereAutogradRecords) {
  const at::Tensor weight = at::ones({1}).set_requires_grad(true);
  Optimizer sgd(sgd_rule(), {{"lr", 0.5}});
  sgd.add_group({weight}, std::nullopt, std::nullopt);
  int calls = 0;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(sgd.step_by([&] {
    ++calls;
    sgd.zero_grad(/*set_to_none=*/true);
    (weight * weight).sum().backward();
  }));
  EXPECT_EQ(weight.item<double>(), 0) << "1 - 0.5 * 2";
  const auto lomo = make_optimizer(lomo_rule());
  lomo->add_group({at::ones({1}).set_requires_grad(true)}, std::nullopt, std::nullopt);
  EXPECT_TRUE(lomo->step_by([&] { ++calls; })) << "has nothing to do, as in Accelerate";
  EXPECT_EQ(calls, 1);
}

TEST(UpdateRuleLomo, RefusesWrongLosses) {
  const Chain chain;
  const auto lomo = make_optimizer(lomo_rule());
  lomo->add_group(chain.weights, std::nullopt, std::nullopt);
  expect_error(Status::kInvalidState, "no gradient history", [&] { lomo_backward({lomo}, at::ones({}), 0.1); });
  expect_error(Status::kShapeMismatch, "one element", [&] { lomo_backward({lomo}, chain.weights[0] * 2, 0.1); });
  expect_error(Status::kInvalidArgument, "lr is -1", [&] { lomo_backward({lomo}, chain.loss(), -1); });
  expect_error(Status::kInvalidArgument, "not LOMO",
               [&] { lomo_backward({make_optimizer(sgd_rule())}, chain.loss(), 1); });
  chain.loss().backward();
  EXPECT_TRUE(chain.weights[0].grad().defined()) << "the hooks are gone";
}

TEST(UpdateRuleClip, ThousandParametersOfSeveralDtypes) {
  std::vector<at::Tensor> parameters;
  for (int64_t i = 0; i < 1000; ++i) {
    const auto dtype = i % 10 == 0 ? at::kBFloat16 : i % 10 == 1 ? at::kDouble : at::kFloat;
    parameters.push_back(at::zeros({1 + i % 50}, dtype).set_requires_grad(true));
    parameters.back().mutable_grad() = random({1 + i % 50}, i).to(dtype);
  }
  std::vector<at::Tensor> all;
  for (const auto& parameter : parameters) all.push_back(parameter.grad().to(at::kDouble));
  const at::Tensor before = at::cat(all);
  for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    const double expected = at::linalg_vector_norm(before, norm_type).item<double>();
    EXPECT_NEAR(clip_gradients_by_norm(parameters, 1e9, norm_type).item<double>() / expected, 1, 1e-6);
  }
  clip_gradients_by_norm(parameters, 1);
  EXPECT_NEAR(clip_gradients_by_norm(parameters, 1e9).item<double>(), 1, 1e-3);
  parameters[5].mutable_grad()[0] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(clip_gradients_by_norm(parameters, 1).item<double>()));
  EXPECT_TRUE(parameters[5].grad()[0].isnan().item<bool>()) << "as torch.nn.utils.clip_grad_norm_";
}

}  // namespace update_rule_test
}  // namespace accel::optim
