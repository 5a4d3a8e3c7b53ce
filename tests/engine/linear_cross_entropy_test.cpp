// SPDX-License-Identifier: Apache-2.0
// The operator accel::linear_cross_entropy against LibTorch's linear and cross_entropy_loss.
#include "nn/linear_cross_entropy.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "config/generated/choices/precision.hpp"
#include "counted_memory.hpp"
#include "expect_error.hpp"
#include "kernels/attention/softmax_rows.hpp"
#include "kernels/cross_entropy_chunks.hpp"
#include "kernels/instruction_set.hpp"
#include "nn/operators.hpp"
#include "precision/autocast.hpp"
#include "tensor/operators/operator.hpp"

namespace accel::nn {
namespace linear_cross_entropy_test {

using tests::expect_error;

// One call with its arguments, and where its gradients are wanted.
struct Problem {
  at::Tensor input, weight, target, bias, class_weight;
  std::string reduction = "mean";
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  int64_t chunk_size = 0;

  Problem in(at::ScalarType dtype) const {
    Problem other = *this;
    for (at::Tensor* tensor : {&other.input, &other.weight, &other.bias, &other.class_weight})
      if (tensor->defined()) *tensor = tensor->detach().to(dtype, false, /*copy=*/true);
    return other;
  }
};

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
}

at::Tensor fused(const Problem& problem) {
  return linear_cross_entropy(problem.input, problem.weight, problem.target, optional(problem.bias),
                              optional(problem.class_weight), problem.reduction, problem.ignore_index,
                              problem.label_smoothing, problem.chunk_size);
}

at::Tensor unfused(const Problem& problem) {
  const at::Tensor scores = at::linear(problem.input, problem.weight, optional(problem.bias));
  const int64_t reduction = problem.reduction == "none" ? 0 : problem.reduction == "mean" ? 1 : 2;
  const at::Tensor loss = at::cross_entropy_loss(scores.reshape({problem.target.numel(), problem.weight.size(0)}),
                                                 problem.target.reshape({-1}), optional(problem.class_weight),
                                                 reduction, problem.ignore_index, problem.label_smoothing);
  return reduction == 0 ? loss.view(problem.target.sizes()) : loss;
}

struct Outcome {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;  // of input, weight and bias
};

// Losses of rows are added with different factors, so that each gradient is seen.
Outcome differentiate(Problem problem, at::Tensor (*compute)(const Problem&)) {
  std::vector<at::Tensor> parameters;
  for (at::Tensor* tensor : {&problem.input, &problem.weight, &problem.bias}) {
    if (!tensor->defined()) continue;
    *tensor = tensor->detach().requires_grad_(true);
    parameters.push_back(*tensor);
  }
  const at::Tensor loss = compute(problem);
  const at::Tensor factors =
      at::arange(1, loss.numel() + 1, at::TensorOptions(at::kDouble)).div(3).to(loss.scalar_type()).view(loss.sizes());
  (loss * factors).sum().backward();
  Outcome outcome{loss.detach(), {}};
  for (const at::Tensor& parameter : parameters) outcome.gradients.push_back(parameter.grad());
  return outcome;
}

// The largest difference, relative to the largest number.
double distance(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  if (expected.numel() == 0) return 0;
  const at::Tensor wide = expected.to(at::kDouble);
  const double largest = std::max(wide.abs().max().item<double>(), 1e-30);
  return (actual.to(at::kDouble) - wide).abs().max().item<double>() / largest;
}

class RandomProblems {
 public:
  explicit RandomProblems(uint64_t seed) : random_(seed) { at::manual_seed(seed); }

  int64_t number(int64_t first, int64_t last) { return std::uniform_int_distribution<int64_t>(first, last)(random_); }
  bool one_in(int64_t count) { return number(1, count) == 1; }

  Problem next() {
    Problem problem;
    std::vector<int64_t> shape;
    for (int64_t dim = number(0, 2); dim >= 0; --dim) shape.push_back(number(1, 9));
    const int64_t features = number(1, 40), classes = one_in(3) ? number(1000, 3000) : number(1, 60);
    if (one_in(8)) shape.clear();  // one row without a dimension
    const at::TensorOptions numbers(at::kFloat);
    problem.target = at::randint(classes, shape, at::TensorOptions(at::kLong));
    problem.ignore_index = one_in(2) ? -100 : number(0, classes - 1);
    if (one_in(2)) problem.target.masked_fill_(at::rand(shape) < 0.3, problem.ignore_index);
    if (one_in(10)) problem.target.fill_(problem.ignore_index);
    shape.push_back(features);
    problem.input = at::randn(shape, numbers);
    if (one_in(4)) problem.input = at::randn({features, problem.target.numel()}).t().view_as(problem.input);
    problem.weight = at::randn({classes, features}, numbers);
    if (one_in(4)) problem.weight = at::randn({features, classes}, numbers).t();
    if (one_in(2)) problem.bias = at::randn({classes}, numbers);
    if (one_in(2)) problem.class_weight = at::rand({classes}, numbers) + 0.1;
    problem.reduction = std::vector<std::string>{"none", "mean", "sum"}[static_cast<size_t>(number(0, 2))];
    if (one_in(2)) problem.label_smoothing = static_cast<double>(number(1, 10)) / 10;
    problem.chunk_size = one_in(3) ? 0 : number(1, 100);
    return problem;
  }

 private:
  std::mt19937_64 random_;
};

void expect_same(const Outcome& actual, const Outcome& expected, double loss_tolerance, double gradient_tolerance) {
  if (expected.loss.isnan().any().item<bool>()) {
    EXPECT_TRUE(actual.loss.isnan().equal(expected.loss.isnan()));
  } else {
    EXPECT_LE(distance(actual.loss, expected.loss), loss_tolerance);
  }
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < actual.gradients.size(); ++i)
    EXPECT_LE(distance(actual.gradients[i], expected.gradients[i]), gradient_tolerance) << "gradient " << i;
}

// What the mean of no rows gives a gradient of: 0 here and in LibTorch, but for the smoothed part, which is 0/0 there.
bool is_empty_mean(const Problem& problem) {
  return problem.reduction == "mean" && problem.target.eq(problem.ignore_index).all().item<bool>();
}

// What devices without kernels run.
TEST(LinearCrossEntropy, OperatorsGiveWhatTheKernelsDo) {
  RandomProblems problems(11);
  for (int trial = 0; trial < 40; ++trial) {
    const Problem drawn = problems.next();
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Problem given = drawn.in(dtype);
      kernels::LinearCrossEntropy problem;
      problem.weight = given.weight;
      problem.input = given.input.reshape({given.target.numel(), given.weight.size(1)});
      problem.bias = given.bias;
      problem.target = given.target.reshape({-1}).contiguous();
      problem.class_weight = given.class_weight;
      problem.reduction = trial % 2 == 0 ? kernels::LossReduction::kMean : kernels::LossReduction::kSum;
      problem.ignore_index = given.ignore_index;
      problem.label_smoothing = given.label_smoothing;
      problem.chunk_size = given.chunk_size;
      const kernels::WantedGradients all{true, true, given.bias.defined()};
      Outcome outcomes[2];
      for (const bool by_operators : {false, true}) {
        problem.uses_operators = by_operators;
        kernels::LinearGradients gradients;
        const at::Tensor loss = kernels::linear_cross_entropy(problem, all, gradients);
        outcomes[by_operators] = {loss, {gradients.input, gradients.weight}};
        if (given.bias.defined()) outcomes[by_operators].gradients.push_back(gradients.bias);
      }
      const double tolerance = dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 4e-6 : 1e-2;
      expect_same(outcomes[1], outcomes[0], dtype == at::kDouble ? 1e-12 : 1e-6, tolerance);
    }
  }
}

struct Threads {
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before); }
  const int before = at::get_num_threads();
};

TEST(LinearCrossEntropy, IsTheUnfusedLoss) {
  RandomProblems problems(7);
  for (int trial = 0; trial < 200; ++trial) {
    const Threads threads(trial < 150 ? 1 : 2);
    const Problem problem = problems.next();
    SCOPED_TRACE(::testing::Message() << "trial " << trial << ": input " << problem.input.sizes() << ", weight "
                                      << problem.weight.sizes() << ", reduction " << problem.reduction << ", smoothing "
                                      << problem.label_smoothing << ", chunk " << problem.chunk_size);
    if (is_empty_mean(problem)) {
      const Outcome outcome = differentiate(problem, fused);
      EXPECT_TRUE(outcome.loss.isnan().item<bool>());
      for (const at::Tensor& gradient : outcome.gradients) EXPECT_TRUE(gradient.eq(0).all().item<bool>());
      continue;
    }
    const Outcome exact = differentiate(problem.in(at::kDouble), unfused);
    expect_same(differentiate(problem, fused), exact, 1e-6, 4e-6);
    expect_same(differentiate(problem.in(at::kDouble), fused), exact, 1e-13, 1e-12);
    EXPECT_LE(distance(fused(problem), unfused(problem).detach()), 2e-6);
  }
}

Problem fixed_problem(int64_t rows = 37, int64_t features = 24, int64_t classes = 1500) {
  at::manual_seed(3);
  Problem problem;
  problem.input = at::randn({rows, features});
  problem.weight = at::randn({classes, features});
  problem.bias = at::randn({classes});
  problem.target = at::randint(classes, {rows}, at::TensorOptions(at::kLong));
  problem.chunk_size = 10;
  return problem;
}

TEST(LinearCrossEntropy, IsAsNearAsTheUnfusedLossInBfloat16) {
  for (const char* reduction : {"none", "mean", "sum"}) {
    Problem problem = fixed_problem(200);
    problem.reduction = reduction;
    problem = problem.in(at::kBFloat16);
    const Outcome exact = differentiate(problem.in(at::kDouble), unfused);
    const Outcome found = differentiate(problem, fused), peer = differentiate(problem, unfused);
    EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
    EXPECT_LE(distance(found.loss, exact.loss), distance(peer.loss, exact.loss));
    for (size_t i = 0; i < found.gradients.size(); ++i) {
      EXPECT_EQ(found.gradients[i].scalar_type(), at::kBFloat16);
      EXPECT_LE(distance(found.gradients[i], exact.gradients[i]), 1.2 * distance(peer.gradients[i], exact.gradients[i]))
          << reduction << ", gradient " << i;
    }
    const Outcome half = differentiate(problem.in(at::kHalf), fused);
    EXPECT_LE(distance(half.loss, exact.loss), 2e-3);
    EXPECT_LE(distance(half.gradients[1], exact.gradients[1]), 5e-3);
  }
}

TEST(LinearCrossEntropy, MultipliesInTheDtypeOfAutocast) {
  for (const char* reduction : {"none", "mean"}) {
    Problem problem = fixed_problem();
    problem.reduction = reduction;
    const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
    const Outcome found = differentiate(problem, fused), peer = differentiate(problem, unfused);
    EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
    EXPECT_GT(distance(found.loss, fused(problem.in(at::kDouble))), 1e-7) << "nothing was rounded";
    EXPECT_LE(distance(found.loss, peer.loss), 5e-3);
    for (size_t i = 0; i < found.gradients.size(); ++i) {
      EXPECT_EQ(found.gradients[i].scalar_type(), at::kFloat);
      EXPECT_LE(distance(found.gradients[i], peer.gradients[i]), 2e-2) << reduction << ", gradient " << i;
    }
    // The input of a layer before this one is in the dtype of autocast already.
    Problem lower = problem;
    lower.input = problem.input.to(at::kBFloat16);
    EXPECT_TRUE(differentiate(lower, fused).gradients[1].equal(found.gradients[1]));
  }
}

TEST(LinearCrossEntropy, GradientsAreThoseOfFiniteDifferences) {
  for (const char* reduction : {"none", "mean", "sum"}) {
    Problem problem = fixed_problem(5, 3, 7).in(at::kDouble);
    problem.reduction = reduction;
    problem.chunk_size = 2;
    problem.label_smoothing = 0.2;
    problem.class_weight = at::rand({7}, at::kDouble);
    problem.target[1] = problem.ignore_index;
    const Outcome outcome = differentiate(problem, fused);
    const auto value = [&] {
      const at::Tensor loss = fused(problem);
      return (loss * at::arange(1, loss.numel() + 1, at::TensorOptions(at::kDouble)).div(3).view(loss.sizes()))
          .sum()
          .item<double>();
    };
    const at::Tensor parameters[] = {problem.input, problem.weight, problem.bias};
    for (size_t i = 0; i < 3; ++i) {
      for (int64_t place = 0; place < parameters[i].numel(); ++place) {
        double* const number = parameters[i].mutable_data_ptr<double>() + place;
        const double before = *number, step = 1e-6;
        *number = before + step;
        const double above = value();
        *number = before - step;
        const double below = value();
        *number = before;
        EXPECT_NEAR(outcome.gradients[i].flatten()[place].item<double>(), (above - below) / (2 * step), 1e-7);
      }
    }
  }
}

TEST(LinearCrossEntropy, ChunksAndThreadsChangeNothing) {
  Problem problem = fixed_problem(301, 16, 5000);
  problem.target.slice(0, 0, 301, 3).fill_(-100);
  for (const char* reduction : {"none", "mean"}) {
    problem.reduction = reduction;
    problem.chunk_size = 0;
    const Outcome expected = differentiate(problem, fused);
    for (const int count : {1, 2}) {
      const Threads threads(count);
      for (const int64_t chunk : {1, 7, 64, 1000}) {
        problem.chunk_size = chunk;
        expect_same(differentiate(problem, fused), expected, 1e-6, 4e-6);
      }
    }
  }
}

TEST(LinearCrossEntropy, MakesOnlyTheGradientsThatAreWanted) {
  for (const char* reduction : {"none", "mean"}) {
    Problem problem = fixed_problem();
    problem.reduction = reduction;
    const Outcome expected = differentiate(problem, fused);
    {
      const at::NoGradGuard no_grad;
      problem.weight.requires_grad_(true);
      const at::Tensor loss = fused(problem);
      EXPECT_FALSE(loss.requires_grad());
      EXPECT_TRUE(loss.equal(expected.loss));
    }
    const at::Tensor factors =
        at::arange(1, expected.loss.numel() + 1, at::TensorOptions(at::kFloat)).div(3).view(expected.loss.sizes());
    (fused(problem) * factors).sum().backward();
    EXPECT_TRUE(problem.weight.grad().equal(expected.gradients[1]));
    EXPECT_FALSE(problem.input.grad().defined());
    problem.weight = problem.weight.detach();
    problem.bias.requires_grad_(true);
    (fused(problem) * factors).sum().backward();
    EXPECT_TRUE(problem.bias.grad().equal(expected.gradients[2]));
  }
}

TEST(LinearCrossEntropy, LeavesOutRowsWithoutAClass) {
  Problem problem = fixed_problem();
  problem.input[4].fill_(std::numeric_limits<float>::quiet_NaN());  // no part of the sums: it is never read
  problem.target[4] = -100;
  const Outcome outcome = differentiate(problem, fused);
  EXPECT_TRUE(outcome.loss.isfinite().item<bool>());
  EXPECT_TRUE(outcome.gradients[0][4].eq(0).all().item<bool>());
  EXPECT_TRUE(outcome.gradients[1].isfinite().all().item<bool>());
}

TEST(LinearCrossEntropy, TakesNoRows) {
  Problem problem = fixed_problem(0);
  EXPECT_TRUE(fused(problem).isnan().item<bool>());
  problem.reduction = "sum";
  EXPECT_EQ(fused(problem).item<float>(), 0);
  const Outcome outcome = differentiate(problem, fused);
  EXPECT_EQ(outcome.gradients[0].sizes(), (std::vector<int64_t>{0, 24}));
  EXPECT_TRUE(outcome.gradients[1].eq(0).all().item<bool>());
  problem.reduction = "none";
  EXPECT_EQ(fused(problem).numel(), 0);
  problem = fixed_problem(3, 0, 5);
  EXPECT_LE(distance(fused(problem), unfused(problem)), 1e-6);
}

TEST(LinearCrossEntropy, KeepsInfinitiesAndNotANumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  // Classes that a bias forbids, also all of a block's and the target's.
  Problem problem = fixed_problem(20, 24, 3000);
  problem.reduction = "none";
  problem.target.fill_(2999);
  problem.bias.slice(0, 0, 2048).fill_(-infinity);
  expect_same(differentiate(problem, fused), differentiate(problem.in(at::kDouble), unfused), 1e-6, 4e-6);
  problem.target[0] = 5;
  EXPECT_EQ(fused(problem)[0].item<float>(), infinity);
  EXPECT_TRUE(fused(problem).slice(0, 1).isfinite().all().item<bool>());

  for (const float wrong : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t place : {0, 1024, 2047, 2999}) {
      Problem broken = fixed_problem(20, 24, 3000);
      broken.reduction = "none";
      broken.bias[place] = wrong;
      EXPECT_TRUE(fused(broken).isnan().all().item<bool>());
      EXPECT_TRUE(differentiate(broken, fused).gradients[0].isnan().all().item<bool>());
    }
  }
  problem.bias.fill_(-infinity);
  EXPECT_TRUE(fused(problem).isnan().all().item<bool>());

  // Scores of a size at which exp() alone is infinite.
  Problem large = fixed_problem();
  large.input.mul_(1000);
  expect_same(differentiate(large, fused), differentiate(large.in(at::kDouble), unfused), 1e-6, 4e-6);
}

TEST(LinearCrossEntropy, KnowsShapesWithoutNumbers) {
  const at::TensorOptions meta = at::TensorOptions(at::kFloat).device(at::kMeta);
  Problem problem;
  problem.input = at::empty({2, 3, 8}, meta.dtype(at::kBFloat16)).requires_grad_(true);
  problem.weight = at::empty({100, 8}, meta.dtype(at::kBFloat16)).requires_grad_(true);
  problem.target = at::empty({2, 3}, meta.dtype(at::kLong));
  for (const char* reduction : {"none", "mean"}) {
    problem.reduction = reduction;
    const at::Tensor loss = fused(problem);
    EXPECT_TRUE(loss.is_meta());
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_EQ(loss.sizes(), problem.reduction == "none" ? problem.target.sizes() : at::IntArrayRef());
    loss.sum().backward();
    EXPECT_EQ(problem.input.grad().sizes(), problem.input.sizes());
    EXPECT_EQ(problem.weight.grad().scalar_type(), at::kBFloat16);
  }
}

TEST(LinearCrossEntropy, KeepsItsGraphWhereItIsAsked) {
  for (const char* reduction : {"none", "mean"}) {
    Problem problem = fixed_problem();
    problem.reduction = reduction;
    const Outcome expected = differentiate(problem, [](const Problem& own) { return fused(own).sum(); });
    problem.weight.requires_grad_(true);
    const at::Tensor loss = fused(problem).sum() * 3;
    const auto gradient = [&](bool keep) { return torch::autograd::grad({loss}, {problem.weight}, {}, keep).at(0); };
    const at::Tensor first = gradient(true), second = gradient(true), third = gradient(false);
    EXPECT_TRUE(first.equal(second));
    EXPECT_TRUE(first.equal(third));
    EXPECT_LE(distance(first, expected.gradients[1] * 9), 4e-6);  // differentiate() has a factor of 1/3
    expect_error(Status::kInvalidState, "differentiated a second time", [&] {
      const at::Tensor own = fused(problem);
      torch::autograd::grad({own.sum()}, {problem.weight});
      torch::autograd::grad({own.sum()}, {problem.weight});
    });
    expect_error(Status::kUnsupported, "no second derivative", [&] {
      const at::Tensor once = torch::autograd::grad({fused(problem).sum()}, {problem.weight}, {}, true, true).at(0);
      once.sum().backward();
    });
  }
  // What a second walk reads must not have changed since the first.
  Problem changed = fixed_problem();
  changed.reduction = "none";
  changed.weight.requires_grad_(true);
  const at::Tensor loss = fused(changed);
  changed.weight.detach().mul_(2);
  EXPECT_THROW(loss.sum().backward(), c10::Error);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const Problem problem = fixed_problem();
  const auto refuse = [&](Status status, const std::string& part, auto change) {
    Problem wrong = problem;
    change(wrong);
    expect_error(status, part, [&] { fused(wrong); });
  };
  refuse(Status::kShapeMismatch, "input has shape [37, 24] and linear_weight [24, 1500]",
         [](Problem& wrong) { wrong.weight = wrong.weight.t(); });
  refuse(Status::kShapeMismatch, "linear_weight [24]", [](Problem& wrong) { wrong.weight = wrong.weight[0]; });
  refuse(Status::kShapeMismatch, "input has shape []", [](Problem& wrong) { wrong.input = at::ones({}); });
  refuse(Status::kShapeMismatch, "target has shape [36]",
         [](Problem& wrong) { wrong.target = wrong.target.slice(0, 1); });
  refuse(Status::kShapeMismatch, "linear_bias has shape [1]",
         [](Problem& wrong) { wrong.bias = wrong.bias.slice(0, 0, 1); });
  refuse(Status::kShapeMismatch, "weight has shape [2]", [](Problem& wrong) { wrong.class_weight = at::ones({2}); });
  refuse(Status::kTypeMismatch, "input is int64", [](Problem& wrong) { wrong.input = wrong.input.to(at::kLong); });
  refuse(Status::kTypeMismatch, "linear_weight is bfloat16 and input float32",
         [](Problem& wrong) { wrong.weight = wrong.weight.to(at::kBFloat16); });
  refuse(Status::kTypeMismatch, "linear_bias is float64",
         [](Problem& wrong) { wrong.bias = wrong.bias.to(at::kDouble); });
  refuse(Status::kTypeMismatch, "weight is int64",
         [](Problem& wrong) { wrong.class_weight = at::ones({1500}, at::kLong); });
  refuse(Status::kTypeMismatch, "target is float32",
         [](Problem& wrong) { wrong.target = wrong.target.to(at::kFloat); });
  refuse(Status::kInvalidArgument, "target of row 5 is 1500; expected a class below 1500, or -100", [](Problem& wrong) {
    wrong.target = wrong.target.clone();
    wrong.target[5] = 1500;
  });
  refuse(Status::kInvalidArgument, "target of row 0 is -1", [](Problem& wrong) {
    wrong.target = wrong.target.clone();
    wrong.target[0] = -1;
  });
  refuse(Status::kInvalidArgument, "reduction is 'average'", [](Problem& wrong) { wrong.reduction = "average"; });
  refuse(Status::kInvalidArgument, "label_smoothing is 1.5", [](Problem& wrong) { wrong.label_smoothing = 1.5; });
  refuse(Status::kInvalidArgument, "label_smoothing is nan", [](Problem& wrong) { wrong.label_smoothing = NAN; });
  refuse(Status::kInvalidArgument, "chunk_size is -1", [](Problem& wrong) { wrong.chunk_size = -1; });
  refuse(Status::kInvalidArgument, "linear_weight is on meta and input on cpu",
         [](Problem& wrong) { wrong.weight = wrong.weight.to(at::kMeta); });
}

TEST(LinearCrossEntropy, IsFoundByItsName) {
  register_operators();
  register_operators();
  EXPECT_EQ(tensor::operator_names("accel::"),
            (std::vector<std::string>{"accel::combine_tokens", "accel::dispatch_tokens", "accel::fp8_linear",
                                      "accel::linear_cross_entropy", "accel::quantize_matrix",
                                      "accel::quantized_linear", "accel::quantized_scales", "accel::split_linear"}));
  const Problem problem = fixed_problem();
  const std::vector<tensor::Argument> arguments = {tensor::Argument::tensor(problem.input),
                                                   tensor::Argument::tensor(problem.weight),
                                                   tensor::Argument::tensor(problem.target)};
  const std::vector<tensor::NamedArgument> named = {{"linear_bias", tensor::Argument::tensor(problem.bias)},
                                                    {"reduction", tensor::Argument::string("sum")}};
  const at::Tensor loss = tensor::find_operator("accel::linear_cross_entropy", "")
                              .call(arguments.data(), arguments.size(), named.data(), named.size())
                              .at(0)
                              .toTensor();
  Problem same = problem;
  same.reduction = "sum";
  EXPECT_LE(distance(loss, unfused(same)), 1e-6);
  expect_error(Status::kNotFound, "accel::linear_cross_entropy",
               [] { tensor::find_operator("accel::linear_crossentropy", ""); });
}

int64_t peak_bytes(const Problem& problem, at::Tensor (*compute)(const Problem&)) {
  return tests::memory_of([&] { compute(problem).backward(); }).peak;
}

TEST(LinearCrossEntropy, NeverHoldsAllScores) {
  Problem problem = fixed_problem(1024, 8, 20000);
  problem.bias = at::Tensor();
  problem.chunk_size = 64;
  problem.input.requires_grad_(true);
  problem.weight.requires_grad_(true);
  const int64_t scores = 1024 * 20000 * 4, chunk = scores / 16;
  const int64_t gradients = (1024 + 20000) * 8 * 4;
  const int64_t whole = peak_bytes(problem, unfused), parts = peak_bytes(problem, fused);
  EXPECT_GE(whole, 2 * scores);  // the scores and their gradient at least
  EXPECT_LE(parts, chunk + gradients + (int64_t{1} << 20));
  RecordProperty("unfused_bytes", std::to_string(whole));
  RecordProperty("fused_bytes", std::to_string(parts));
}

std::vector<kernels::SoftmaxKernels> instruction_sets() {
  std::vector<kernels::SoftmaxKernels> sets = {kernels::baseline::softmax_kernels()};
#ifdef __x86_64__
  if (kernels::fastest_instruction_set() >= kernels::InstructionSet::kAvx2)
    sets.push_back(kernels::avx2::softmax_kernels());
  if (kernels::fastest_instruction_set() >= kernels::InstructionSet::kAvx512)
    sets.push_back(kernels::avx512::softmax_kernels());
#endif
  return sets;
}

TEST(LinearCrossEntropyKernels, InstructionSetsGiveTheSameBits) {
  const int64_t classes = 2500;
  const std::vector<int64_t> targets = {0, 1200, 2499};
  const auto dtypes = {
      std::make_pair(at::kFloat, kernels::Format::kFloat), std::make_pair(at::kDouble, kernels::Format::kDouble),
      std::make_pair(at::kBFloat16, kernels::Format::kBFloat16), std::make_pair(at::kHalf, kernels::Format::kHalf)};
  for (const auto& [dtype, format] : dtypes) {
    at::manual_seed(1);
    const at::Tensor scores = at::randn({3, classes}).mul(8).to(dtype);
    const at::Tensor weight = at::rand({classes}).to(dtype == at::kDouble ? at::kDouble : at::kFloat);
    const std::vector<kernels::RowFactors> factors(3, {0.5, 1e-4, 0.4});
    at::Tensor first_sums, first_scores;
    for (const kernels::SoftmaxKernels& set : instruction_sets()) {
      const at::Tensor own = scores.clone(), sums = at::empty({3, 4}, at::kDouble);
      kernels::ScoreRows rows;
      rows.scores = own.mutable_data_ptr();
      rows.classes = classes;
      rows.targets = targets.data();
      rows.class_weight = weight.const_data_ptr();
      rows.format = format;
      rows.sums_scores = true;
      auto* const results = static_cast<kernels::RowSums*>(sums.mutable_data_ptr());
      set.measure(rows, 0, 3, results);
      set.differentiate(rows, 0, 3, results, factors.data());
      if (!first_sums.defined()) {
        first_sums = sums;
        first_scores = own;
        const at::Tensor wide = scores.to(at::kDouble);
        EXPECT_TRUE(sums.select(1, 0).equal(wide.amax(1)));
        EXPECT_LE(distance(sums.select(1, 1), (wide - wide.amax(1, true)).exp().sum(1)), 1e-6);
        EXPECT_LE(distance(sums.select(1, 2), at::mv(wide, weight.to(at::kDouble))), 1e-5);
      }
      EXPECT_TRUE(sums.equal(first_sums));
      EXPECT_TRUE(own.equal(first_scores));
    }
  }
}

TEST(LinearCrossEntropyKernels, ExponentialIsRightToTheLastBits) {
  const auto largest_error = [](at::ScalarType dtype, kernels::Format format, double least, double tolerance) {
    const std::vector<int64_t> targets(1, 0);
    for (int step = 0; step <= 20000; ++step) {
      const double x = least * step / 20000;
      const at::Tensor scores = at::tensor({0.0, x}, at::kDouble).to(dtype).unsqueeze(0);
      const double exact = std::exp(scores[0][1].item<double>());
      kernels::ScoreRows rows;
      rows.scores = scores.mutable_data_ptr();
      rows.classes = 2;
      rows.targets = targets.data();
      rows.format = format;
      kernels::RowSums sums;
      const kernels::RowFactors factors{1.0, 0.0, 0.0};
      const kernels::SoftmaxKernels set = instruction_sets().back();
      set.measure(rows, 0, 1, &sums);
      sums.sum = 1;  // so that the gradient is the exponential alone
      set.differentiate(rows, 0, 1, &sums, &factors);
      ASSERT_NEAR(scores[0][1].item<double>() / exact, 1, tolerance) << x;
    }
  };
  largest_error(at::kFloat, kernels::Format::kFloat, -87, 2e-7);
  largest_error(at::kDouble, kernels::Format::kDouble, -708, 4e-16);
}

}  // namespace linear_cross_entropy_test
}  // namespace accel::nn
