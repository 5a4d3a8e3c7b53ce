// SPDX-License-Identifier: Apache-2.0
// Random trees of modules, shapes, ties, frozen parameters and settings of sharding: training equals that of the whole
// model.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "rank_threads.hpp"

namespace accel::parallel {
namespace sharded_programs_test {

constexpr unsigned kPrograms = 60;
constexpr int kSteps = 5;
constexpr int64_t kRows = 12, kWidth = 3;
constexpr int kDepth = 4;

class Chance {
 public:
  explicit Chance(unsigned seed) : generator_(seed) {}
  int64_t below(int64_t count) { return static_cast<int64_t>(generator_() % static_cast<uint64_t>(count)); }
  bool in(int64_t percent) { return below(100) < percent; }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  std::mt19937 generator_;  // the same numbers everywhere
};

enum class CallOrder { kOnce, kTwice, kBeside, kInOddSteps };

// Whole trees by their seed, so that each rank and the process alone build the same one.
class Builder {
 public:
  explicit Builder(unsigned seed) : chance_(seed) {}

  nn::ModulePtr build(int depth = 1) {
    const auto module = std::make_shared<nn::CallbackModule>(chance_.one_of({"Alpha", "Beta", "Gamma"}));
    const int64_t parameters = chance_.below(4) + (depth == 1 ? 1 : 0);
    for (int64_t i = 0; i < parameters; i++) add_parameter(*module, "p" + std::to_string(i));
    std::vector<CallOrder> orders;
    const int64_t children = depth < kDepth ? chance_.below(4) : 0;
    for (int64_t i = 0; i < children; i++) {
      const bool is_shared = !complete_.empty() && chance_.in(15);
      const auto index = is_shared ? chance_.below(static_cast<int64_t>(complete_.size())) : 0;
      module->add_child("m" + std::to_string(i), is_shared ? complete_[static_cast<size_t>(index)] : build(depth + 1));
      orders.push_back(chance_.in(60)
                           ? CallOrder::kOnce
                           : chance_.one_of({CallOrder::kTwice, CallOrder::kBeside, CallOrder::kInOddSteps}));
    }
    module->set_forward([orders, parameters, reversed = chance_.in(15)](nn::Module& self,
                                                                        const nn::Inputs& inputs) -> c10::IValue {
      const int64_t step = inputs[1].toInt();
      at::Tensor x = inputs[0].toTensor();
      for (int64_t i = 0; i < parameters; i++) x = use(self.parameter(static_cast<size_t>(i)), x);
      for (size_t i = 0; i < orders.size(); i++) {
        // In other steps in another order.
        const size_t index = reversed && step % 2 == 1 ? orders.size() - 1 - i : i;
        const nn::ModulePtr& child = self.children()[index].second;
        const auto called = [&](const at::Tensor& input) { return child->call(nn::Inputs{input, step}).toTensor(); };
        switch (orders[index]) {
          case CallOrder::kOnce:
            x = called(x);
            break;
          case CallOrder::kTwice:
            x = called(called(x));
            break;
          case CallOrder::kBeside:
            x = (called(x) + called(x * 0.5)) * 0.5;
            break;
          case CallOrder::kInOddSteps:
            if (step % 2 == 1) x = called(x);
        }
      }
      return x;
    });
    complete_.push_back(module);
    return module;
  }

 private:
  // Rows of 1, primes, more and fewer than ranks; some parameters have no elements.
  void add_parameter(nn::Module& module, const std::string& name) {
    const bool trained = !chance_.in(20);
    const int64_t rows = chance_.one_of<int64_t>({1, 2, 3, 5, 7, 11, 13});
    std::vector<int64_t> shape;
    switch (chance_.below(6)) {
      case 0:
        shape = {kWidth};
        break;
      case 1:
        shape = {1};
        break;
      case 2:
        shape = {rows, kWidth, 2};
        break;
      case 3:
        shape = chance_.in(50) ? std::vector<int64_t>{0, kWidth} : std::vector<int64_t>{rows, 0};
        break;
      default:
        shape = {rows, kWidth};
    }
    for (const at::Tensor& former : tensors_)
      if (former.sizes() == shape && chance_.in(10)) {
        module.add_parameter(name, former, former.requires_grad());
        return;
      }
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    tensors_.push_back(
        at::arange(elements, at::kFloat).mul(0.7).add(static_cast<double>(tensors_.size())).sin().mul(0.4).view(shape));
    module.add_parameter(name, tensors_.back(), trained);
  }

  static at::Tensor use(const at::Tensor& parameter, const at::Tensor& x) {
    if (parameter.numel() == 0) return x + parameter.sum();
    if (parameter.dim() == 1) return parameter.numel() == 1 ? x * (parameter * 0.1 + 1) : x + parameter * 0.1;
    const at::Tensor matrix = parameter.dim() == 3 ? parameter.select(2, 0) + parameter.select(2, 1) : parameter;
    const at::Tensor hidden = at::tanh(at::linear(x, matrix));
    return x * 0.9 + at::matmul(hidden, matrix) * (0.3 / static_cast<double>(matrix.size(0)));
  }

  Chance chance_;
  std::vector<nn::ModulePtr> complete_;
  std::vector<at::Tensor> tensors_;
};

struct Program {
  unsigned seed;
  int ranks = 1;
  int accumulation = 1;
  FsdpSettings settings = {};
};

Program random_program(unsigned seed) {
  Chance chance(1000 + seed);
  Program program{seed};
  program.ranks = 2 + static_cast<int>(chance.below(3));
  program.accumulation = 1 + static_cast<int>(chance.below(2));
  FsdpSettings& settings = program.settings;
  settings.enabled = true;
  settings.sharding_strategy =
      chance.one_of({ShardingStrategy::kFullShard, ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
                     ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardZero2});
  settings.backward_prefetch =
      chance.one_of({BackwardPrefetch::kBackwardPre, BackwardPrefetch::kBackwardPost, BackwardPrefetch::kNoPrefetch});
  settings.forward_prefetch = chance.in(50);
  settings.limit_all_gathers = chance.in(50);
  settings.activation_checkpointing = chance.in(30);
  if (chance.in(20)) settings.ignored_modules = std::string("m0|m1\\.m0");
  std::unordered_set<std::string> kinds;
  const nn::ModulePtr model = Builder(seed).build();
  for (const auto& [path, module] : nn::named_modules(*model)) kinds.insert(module->kind());
  const std::string first = chance.one_of({"Alpha", "Beta", "Gamma"}), second = chance.one_of({"Beta", "Gamma"});
  std::string names = kinds.count(first) != 0 ? first : "";
  if (second != first && kinds.count(second) != 0) names += names.empty() ? second : ", " + second;
  if (chance.in(60) && !names.empty()) {
    settings.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
    settings.transformer_cls_names_to_wrap = names;
  } else if (chance.in(70)) {
    settings.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap;
    settings.min_num_params = chance.one_of<int64_t>({1, 10, 40});
  }
  return program;
}

struct Trained {
  std::vector<double> losses = std::vector<double>(kSteps, 0);  // the mean of the ranks'
  std::map<std::string, at::Tensor> parameters;
};

at::Tensor rows_of(int step, int rank, int ranks) {
  const at::Tensor all = at::arange(kRows * kWidth, at::kFloat).mul(0.37 + step).sin().view({kRows, kWidth});
  return all.slice(0, kRows / ranks * rank, kRows / ranks * (rank + 1));
}

// Those of modules that are left out are the application's.
void average_other_gradients(const ParallelModel& model, comm::Communicator& all) {
  const nn::Placements placements = nn::placements(*model.module());
  for (const at::Tensor& parameter : model.module()->parameters())
    if (placements.find(parameter) == nullptr && parameter.grad().defined())
      all.all_reduce(parameter.grad(), comm::ReduceOp::kMean);
}

Trained train(const Program& program) {
  Trained trained;
  std::mutex mutex;
  tests::run_ranks(program.ranks, [&](const std::shared_ptr<comm::Communicator>& all) {
    PrepareModelSettings preparation;
    preparation.fsdp = program.settings;
    const nn::ModulePtr inner = Builder(program.seed).build();
    const ParallelModelPtr model =
        parallelize(inner, fsdp_fixture::model_ranks(all, program.settings.sharding_strategy), preparation, at::kCPU);
    // Modules that are left out may have all parameters.
    if (program.ranks == 1 || program.settings.ignored_modules.value.empty()) {
      EXPECT_EQ(!nn::placements(*inner).empty(), program.ranks > 1);
    }
    const auto optimizer = optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.1}, {"momentum", 0.9}});
    std::vector<at::Tensor> trainable;
    for (const at::Tensor& parameter : inner->parameters())
      if (parameter.requires_grad()) trainable.push_back(parameter);
    if (!trainable.empty()) optimizer->add_group(trainable, std::nullopt, std::nullopt);
    for (int step = 0; step < kSteps; step++) {
      for (int micro = 0; micro < program.accumulation; micro++) {
        model->set_gradient_sync(micro + 1 == program.accumulation);
        const at::Tensor rows = rows_of(10 * step + micro, all->rank(), program.ranks);
        const at::Tensor output = model->call(nn::Inputs{rows, static_cast<int64_t>(step)}).toTensor();
        const at::Tensor loss = (output - 0.3).square().mean() / program.accumulation;
        if (loss.requires_grad()) torch::autograd::backward({loss}, {});
        const std::lock_guard<std::mutex> lock(mutex);
        trained.losses[static_cast<size_t>(step)] += loss.item<double>() / program.ranks;
      }
      model->finish_step();
      average_other_gradients(*model, *all);
      if (trainable.empty()) continue;
      optimizer->step();
      optimizer->zero_grad(true);
    }
    auto parameters = fsdp_fixture::whole_parameters(*model);
    if (all->rank() == 0) trained.parameters = std::move(parameters);
  });
  return trained;
}

std::string description_of(const Program& program) {
  return text("program ", program.seed, ": ", program.ranks, " ranks, strategy ",
              static_cast<int>(program.settings.sharding_strategy.value), ", accumulation ", program.accumulation,
              ", wrapped ", program.settings.transformer_cls_names_to_wrap.value, " from ",
              program.settings.min_num_params.value, " parameters on, without '",
              program.settings.ignored_modules.value, "'",
              program.settings.activation_checkpointing ? ", activation checkpointing" : "");
}

void expect_equal_to_one_process(unsigned seed) {
  const Program program = random_program(seed);
  SCOPED_TRACE(description_of(program));
  Program alone = program;
  alone.ranks = 1;
  alone.settings = {};
  const Trained expected = train(alone);
  Trained actual;
  ASSERT_NO_THROW(actual = train(program));
  for (size_t step = 0; step < kSteps; step++)
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * std::abs(expected.losses[step])) << step;
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, parameter] : expected.parameters)
    EXPECT_TRUE(at::allclose(actual.parameters.at(name), parameter, 1e-5, 1e-6)) << name;
}

// With ACCEL_TEST_PROGRAM only the one of that number, which may be any; with ACCEL_TEST_PROGRAMS so many of them.
TEST(ShardedPrograms, EqualThatOfTheWholeModel) {
  const char* const only = std::getenv("ACCEL_TEST_PROGRAM");
  if (only != nullptr) return expect_equal_to_one_process(static_cast<unsigned>(std::stoul(only)));
  const char* const given = std::getenv("ACCEL_TEST_PROGRAMS");
  const unsigned programs = given == nullptr ? kPrograms : static_cast<unsigned>(std::stoul(given));
  for (unsigned seed = 0; seed < programs; seed++) expect_equal_to_one_process(seed);
}

}  // namespace sharded_programs_test
}  // namespace accel::parallel
