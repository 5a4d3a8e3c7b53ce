// SPDX-License-Identifier: Apache-2.0
// Local SGD with what Accelerate's has not: a start, a group that exchanges gradients, an outer step.
#include "parallel/localsgd/local_sgd.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "accelerator/prepared_model.hpp"
#include "accelerator_ranks.hpp"
#include "checkpoint_fixture.hpp"
#include "comm/group.hpp"
#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "nn/callback_module.hpp"
#include "nn_fixture.hpp"
#include "optim/parameter_optimizer.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace local_sgd_test {

using tests::run_ranks;
using DdpPtr = std::shared_ptr<DistributedDataParallel>;

constexpr double kRate = 0.125;

// One weight whose gradient is the input.
nn::ModulePtr one_weight() {
  auto model = std::make_shared<nn::CallbackModule>("OneWeight");
  model->add_parameter("w", at::ones({1}), true);
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return (module.parameter(0) * inputs[0].toTensor()).sum();
  });
  return model;
}

DdpPtr new_model(const std::shared_ptr<comm::Communicator>& communicator) {
  return std::make_shared<DistributedDataParallel>(one_weight(), communicator, DdpSettings{});
}

at::Tensor weight_of(const DdpPtr& model) { return model->parameters()[0]; }
double value_of(const DdpPtr& model) { return weight_of(model).item<double>(); }

// A step of plain SGD with this gradient on this rank.
void train(const DdpPtr& model, double gradient) {
  const at::Tensor weight = weight_of(model);
  if (weight.grad().defined()) weight.mutable_grad().zero_();
  torch::autograd::backward({model->call(nn::Inputs{at::full({1}, gradient)}).toTensor()}, {});
  const at::NoGradGuard no_grad;
  weight_of(model).add_(weight.grad(), -kRate);
}

LocalSgdSettings from(int64_t start) {
  LocalSgdSettings settings;
  settings.start_step = start;
  return settings;
}

LocalSgdSettings diloco() {
  LocalSgdSettings settings;
  settings.outer_lr = 0.7;
  settings.outer_momentum = 0.9;
  settings.outer_nesterov = true;
  return settings;
}

TEST(LocalSgdStart, GradientsAreExchangedBeforeIt) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = new_model(communicator);
    LocalSgd local_sgd(model, communicator, 2, from(3), nullptr);
    const double mine = communicator->rank() == 0 ? 2 : 4;  // 3 on average
    std::vector<double> weights;
    std::vector<bool> met;
    for (int step = 0; step < 7; step++) {
      train(model, mine);
      met.push_back(local_sgd.step());
      weights.push_back(value_of(model));
    }
    EXPECT_EQ(met, (std::vector<bool>{false, false, false, false, true, false, true}));
    const auto after = [](double together, double alone) { return 1 - kRate * (3 * together + alone); };
    const std::vector<double> expected{after(1, 0), after(2, 0),    after(3, 0), after(3, mine),
                                       after(5, 0), after(5, mine), after(7, 0)};
    for (size_t step = 0; step < expected.size(); step++) EXPECT_NEAR(weights[step], expected[step], 1e-6) << step;
  });
}

TEST(LocalSgdStart, ScopesThatBeginAndEndDoNotTurnTheExchangeOnAgain) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = new_model(communicator);
    {
      LocalSgd local_sgd(model, communicator, 100, from(1), nullptr);
      {
        const accelerator::NoSyncGuard accumulating({model});
        local_sgd.step();  // the local steps begin in here
      }
      train(model, communicator->rank());
      EXPECT_NEAR(value_of(model), 1 - kRate * communicator->rank(), 1e-6);
      local_sgd.step();
      local_sgd.average_parameters();
      EXPECT_NEAR(value_of(model), 1 - kRate * 0.5, 1e-6);
    }
    train(model, communicator->rank());  // exchanged again
    EXPECT_NEAR(value_of(model), 1 - kRate * 1.0, 1e-6);
  });
}

TEST(LocalSgdGroup, GoesOnExchangingGradients) {
  run_ranks(4, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const int rank = communicator->rank();
    const auto host = comm::split_group(*communicator, rank / 2, rank);
    const auto model = new_model(communicator);
    LocalSgd local_sgd(model, communicator, 2, {}, host);
    const double of_host = rank < 2 ? 0.5 : 2.5;  // the mean of its ranks
    train(model, rank);
    EXPECT_FALSE(local_sgd.step());
    EXPECT_NEAR(value_of(model), 1 - kRate * of_host, 1e-6);
    train(model, rank);
    EXPECT_TRUE(local_sgd.step());
    EXPECT_NEAR(value_of(model), 1 - kRate * 3, 1e-6);
    host->barrier();
  });
}

// It exchanges gradients when the local steps are over.
// Regression: a gradient hook that was registered inside of local SGD was gone when its scope ended.
TEST(LocalSgdGroup, AHookThatIsRegisteredMeanwhileStays) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = new_model(communicator);
    int buckets = 0;
    {
      LocalSgd local_sgd(model, communicator, 2, {}, nullptr);
      model->register_comm_hook([&buckets](const at::Tensor&, int64_t, bool) { buckets++; });
      train(model, 1);
      EXPECT_EQ(buckets, 0);
    }
    train(model, 1);
    EXPECT_EQ(buckets, 1);
  });
}

// w(t) = w(t-1) - 0.7 (d + 0.9 m), m = 0.9 m + d, d = w(t-1) - mean.
TEST(LocalSgdOuter, IsNesterovOnTheWayOfTheRanks) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = new_model(communicator);
    LocalSgd local_sgd(model, communicator, 3, diloco(), nullptr);
    double met = 1, momentum = 0;
    for (int round = 0; round < 4; round++) {
      const double mine = communicator->rank() == 0 ? 1 + round : -2;
      for (int step = 0; step < 3; step++) {
        train(model, mine);
        EXPECT_EQ(local_sgd.step(), step == 2);
      }
      const double way = kRate * 3 * (1 + round - 2) / 2;
      momentum = round == 0 ? way : 0.9 * momentum + way;
      met -= 0.7 * (way + 0.9 * momentum);
      EXPECT_NEAR(value_of(model), met, 1e-5) << "round " << round;
    }
    const double before = value_of(model);
    local_sgd.average_parameters();  // nothing was learnt since: the momentum must not move the weights
    EXPECT_EQ(value_of(model), before);
  });
}

TEST(LocalSgdOuter, AResumedRunGoesOnAsTheWholeOne) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto gradient = [&](int step) { return communicator->rank() == 0 ? 0.5 * step : 1.0 - step; };
    const auto whole = new_model(communicator), resumed = new_model(communicator);
    LocalSgd local_sgd(whole, communicator, 2, diloco(), nullptr);
    for (int step = 0; step < 5; step++) {
      train(whole, gradient(step));
      local_sgd.step();
    }
    const c10::IValue saved = tree::map_tensors(local_sgd.state_dict(), [](const at::Tensor& t) { return t.clone(); });
    LocalSgd other(resumed, communicator, 2, diloco(), nullptr);
    other.load_state_dict(saved);
    {
      const at::NoGradGuard no_grad;
      weight_of(resumed).copy_(weight_of(whole));
    }
    for (int step = 5; step < 10; step++) {
      for (const auto& [model, steps] : {std::pair(whole, &local_sgd), std::pair(resumed, &other)}) {
        train(model, gradient(step));
        steps->step();
      }
      EXPECT_EQ(value_of(resumed), value_of(whole)) << "step " << step;
    }
    LocalSgd plain(resumed, communicator, 2, {}, nullptr);
    tests::expect_error(Status::kInvalidArgument, "expected none", [&] { plain.load_state_dict(saved); });
    tests::expect_error(Status::kInvalidArgument, "num_steps", [&] { other.load_state_dict(tree::new_map()); });
    tests::expect_error(Status::kInvalidArgument, "expected a map", [&] { other.load_state_dict(c10::IValue(3)); });
  });
}

// Three layers of state differ by rank between two averages: weights, momentum, and the steps of the outer optimizer.
void expect_the_same_after_a_load(int ranks, const LocalSgdSettings& settings, int save_at) {
  constexpr int kSteps = 9;
  const checkpoint::tests::Folder folder;
  std::vector<double> expected(static_cast<size_t>(ranks));
  for (const bool resumed : {false, true})
    tests::run_accelerators(ranks, {}, [&](const tests::AcceleratorPtr& accelerator) {
      const int rank = accelerator->state().process_index();
      const nn::ModulePtr inner = one_weight();
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
      auto sgd = std::make_shared<optim::ParameterOptimizer>(optim::sgd_rule(),
                                                             optim::GivenSettings{{"lr", kRate}, {"momentum", 0.9}});
      sgd->add_group(inner->parameters(), std::nullopt, std::nullopt);
      const auto optimizer = accelerator->preparation().prepare_optimizer(sgd);
      const auto local_sgd = accelerator->preparation().begin_local_sgd(model, 4, settings, nullptr);
      if (resumed) accelerator->checkpoints().load_state(folder / "state");
      for (int step = resumed ? save_at : 0; step < kSteps; step++) {
        if (!resumed && step == save_at) accelerator->checkpoints().save_state(folder / "state");
        const double gradient = rank == 0 ? 0.5 * step : 1.0 - step;
        accelerator->backward().run(model->call(nn::Inputs{at::full({1}, gradient)}).toTensor());
        optimizer->step();
        optimizer->zero_grad(/*set_to_none=*/true);
        local_sgd->step();
      }
      const double weight = inner->parameters()[0].item<double>();
      if (!resumed) expected[static_cast<size_t>(rank)] = weight;
      EXPECT_EQ(weight, expected[static_cast<size_t>(rank)]) << "rank " << rank << ", saved at step " << save_at;
    });
}

// Regression: a training state that was saved inside of local SGD had rank 0's weights and optimizers for all ranks,
// and no count of steps.
TEST(LocalSgdCheckpoint, ARunThatIsResumedContinuesExactly) {
  for (const int ranks : {1, 2, 3})
    for (const int save_at : {0, 1, 4, 6}) {
      expect_the_same_after_a_load(ranks, {}, save_at);
      expect_the_same_after_a_load(ranks, diloco(), save_at);
      expect_the_same_after_a_load(ranks, from(3), save_at);
    }
}

// Four ranks would need four ranks' weights: they begin at the mean of those that were saved.
TEST(LocalSgdCheckpoint, OtherNumbersOfRanksBeginAtTheMean) {
  const checkpoint::tests::Folder folder;
  const auto run = [&](int ranks, const std::function<void(accelerator::Accelerator&, at::Tensor)>& body) {
    tests::run_accelerators(ranks, {}, [&](const tests::AcceleratorPtr& accelerator) {
      const nn::ModulePtr inner = one_weight();
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
      const auto local_sgd = accelerator->preparation().begin_local_sgd(model, 4, {}, nullptr);
      if (ranks == 2) local_sgd->step();
      body(*accelerator, inner->parameters()[0].detach());
    });
  };
  run(2, [&](accelerator::Accelerator& accelerator, const at::Tensor& weight) {
    weight.fill_(3 + 4 * accelerator.state().process_index());
    accelerator.checkpoints().save_state(folder / "state");
    weight.fill_(0);
    accelerator.checkpoints().load_state(folder / "state");
    EXPECT_EQ(weight.item<double>(), 3 + 4 * accelerator.state().process_index());
  });
  for (const int ranks : {1, 3})
    run(ranks, [&](accelerator::Accelerator& accelerator, const at::Tensor& weight) {
      accelerator.checkpoints().load_state(folder / "state");
      EXPECT_EQ(weight.item<double>(), 5);
    });
}

// One process averages nothing, and has no steps to count.
TEST(LocalSgdCheckpoint, OfOneProcessBeginsAnewOnSeveral) {
  const checkpoint::tests::Folder folder;
  for (const int ranks : {1, 2})
    tests::run_accelerators(ranks, {}, [&](const tests::AcceleratorPtr& accelerator) {
      const nn::ModulePtr model = accelerator->preparation().prepare_model(one_weight());
      const auto local_sgd = accelerator->preparation().begin_local_sgd(model, 2, {}, nullptr);
      local_sgd->step();
      if (ranks == 1) return accelerator->checkpoints().save_state(folder / "state");
      accelerator->checkpoints().load_state(folder / "state");
      EXPECT_FALSE(local_sgd->step());
      EXPECT_TRUE(local_sgd->step());
    });
}

// Outside of local SGD all ranks have rank 0's.
TEST(LocalSgdCheckpoint, IsLeftOutWhereNoScopeIsOpen) {
  const checkpoint::tests::Folder folder;
  tests::run_accelerators(2, {}, [&](const tests::AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = one_weight();
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    auto local_sgd = accelerator->preparation().begin_local_sgd(model, 4, {}, nullptr);
    local_sgd->step();
    const at::Tensor weight = inner->parameters()[0].detach();
    weight.fill_(3 + 4 * accelerator->state().process_index());
    accelerator->checkpoints().save_state(folder / "state");
    const auto second = accelerator->preparation().begin_local_sgd(model, 4, {}, nullptr);
    tests::expect_error(Status::kInvalidState, "inside of 1 scopes of local SGD and 2 are open",
                        [&] { accelerator->checkpoints().load_state(folder / "state"); });
    local_sgd->finish();
    accelerator->free_memory();
  });
  tests::run_accelerators(2, {}, [&](const tests::AcceleratorPtr& accelerator) {
    const nn::ModulePtr inner = one_weight();
    accelerator->preparation().prepare_model(inner);
    accelerator->checkpoints().load_state(folder / "state");
    EXPECT_EQ(inner->parameters()[0].item<double>(), 3);
  });
}

TEST(LocalSgd, BadSettingsAreRefused) {
  const auto model = single_process_model(std::make_shared<nn::CallbackModule>("Nothing"));
  tests::expect_error(Status::kInvalidArgument, "local_sgd_steps is 0",
                      [&] { LocalSgd refused(model, nullptr, 0, {}, nullptr); });
  tests::expect_error(Status::kInvalidArgument, "start_step is -1",
                      [&] { LocalSgd refused(model, nullptr, 1, from(-1), nullptr); });
}

}  // namespace local_sgd_test
}  // namespace accel::parallel
