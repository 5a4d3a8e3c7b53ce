// SPDX-License-Identifier: Apache-2.0
// What a program may not do with a sharded model is an error that names the module or the parameter; what it may do
// works.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator_ranks.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "tensor/set_data.hpp"

namespace accel::parallel {
namespace sharded_misuse_test {

using fsdp_fixture::by_blocks;
using fsdp_fixture::make_model;
using fsdp_fixture::rows_of_step;
using tests::AcceleratorPtr;
using tests::expect_error;

struct Prepared {
  AcceleratorPtr accelerator;
  std::shared_ptr<nn::CallbackModule> inner;
  nn::ModulePtr model;
  std::shared_ptr<optim::Optimizer> optimizer;

  at::Tensor loss(int step = 0) const { return model->call(rows_of_step(step)).square().mean(); }
  void train(int step = 0) const {
    accelerator->backward().run(loss(step));
    optimizer->step();
    optimizer->zero_grad(true);
  }
};

PrepareModelSettings sharded() {
  PrepareModelSettings settings;
  settings.fsdp = by_blocks();
  return settings;
}

std::shared_ptr<optim::Optimizer> adam_of(const std::vector<at::Tensor>& parameters) {
  const auto optimizer = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.02}});
  optimizer->add_group(parameters, std::nullopt, std::nullopt);
  return optimizer;
}

Prepared prepare(const AcceleratorPtr& accelerator, const std::shared_ptr<nn::CallbackModule>& inner,
                 const PrepareModelSettings& settings, const std::vector<at::Tensor>& trained) {
  Prepared prepared{accelerator, inner, nullptr, nullptr};
  const auto optimizer = adam_of(trained);
  prepared.model = accelerator->preparation().prepare_model(inner, settings);
  prepared.optimizer = accelerator->preparation().prepare_optimizer(optimizer);
  return prepared;
}

Prepared prepare(const AcceleratorPtr& accelerator, const std::shared_ptr<nn::CallbackModule>& inner,
                 const PrepareModelSettings& settings = sharded()) {
  return prepare(accelerator, inner, settings, inner->parameters());
}

void on_ranks(int ranks, const std::function<void(const Prepared&)>& body) {
  tests::run_accelerators(ranks, {},
                          [&](const AcceleratorPtr& accelerator) { body(prepare(accelerator, make_model())); });
}

using LossOfStep = std::function<at::Tensor(const Prepared&, int step)>;

// What a training says on rank 0; each rank has all rows.
std::vector<double> losses_of(int ranks, int steps, const std::function<Prepared(const AcceleratorPtr&)>& make,
                              const LossOfStep& loss_of = &Prepared::loss) {
  std::vector<double> losses;
  tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
    const Prepared prepared = make(accelerator);
    for (int step = 0; step < steps; step++) {
      const at::Tensor loss = loss_of(prepared, step);
      accelerator->backward().run(loss);
      prepared.optimizer->step();
      prepared.optimizer->zero_grad(true);
      if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
    }
  });
  EXPECT_EQ(losses.size(), steps);
  return losses;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); i++) EXPECT_NEAR(actual[i], expected[i], 1e-6 * expected[i]) << i;
}

// On all ranks, so that nobody waits.
void fails_in_the_next_forward(const std::string& part, const std::function<void(nn::CallbackModule& inner)>& change) {
  on_ranks(2, [&](const Prepared& prepared) {
    prepared.train();
    change(*prepared.inner);
    expect_error(Status::kInvalidState, part, [&] { prepared.loss(); });
  });
}

// Regression: a sharded model trained on without an error after a parameter was replaced or its memory exchanged.
TEST(ShardedMisuse, AParameterWasReplaced) {
  fails_in_the_next_forward("parameter 'block1.weight' was added or replaced after", [](nn::CallbackModule& inner) {
    inner.find("block1")->replace_tensor("weight", at::zeros({7, 7}).requires_grad_());
  });
}

TEST(ShardedMisuse, AParameterWasAdded) {
  fails_in_the_next_forward("parameter 'block2.scale' was added or replaced after", [](nn::CallbackModule& inner) {
    inner.find("block2")->add_parameter("scale", at::zeros({7}));
  });
}

TEST(ShardedMisuse, AParameterWasRemoved) {
  fails_in_the_next_forward("parameter 'block2.bias' was removed after",
                            [](nn::CallbackModule& inner) { inner.find("block2")->remove("bias"); });
}

TEST(ShardedMisuse, TheDataOfAParameterWereExchanged) {
  const char* const expected = "the data of 'block0.bias' of the module 'block0'";
  fails_in_the_next_forward(expected, [](nn::CallbackModule& inner) {  // of another size
    tensor::set_data(nn::find_tensor(inner, "block0.bias"), at::zeros({7}));
  });
  fails_in_the_next_forward(expected, [](nn::CallbackModule& inner) {  // in other memory
    const at::Tensor bias = nn::find_tensor(inner, "block0.bias");
    tensor::set_data(bias, bias.detach().clone());
  });
  fails_in_the_next_forward("the data of 'first' of the model are not those of its shard any more: they are Double",
                            [](nn::CallbackModule& inner) { inner.to(at::kDouble, std::nullopt); });
}

// Of what a module has in place, the rows of this rank change.
TEST(ShardedMisuse, ParametersMayChangeInPlace) {
  on_ranks(2, [](const Prepared& prepared) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : prepared.inner->parameters()) parameter.zero_();
    prepared.inner->to(at::kFloat, at::Device(at::kCPU));  // what they are
    EXPECT_EQ(prepared.loss().item<double>(), 0);
  });
}

// Regression: a part of a sharded model could be prepared once more, which sharded its shards.
TEST(ShardedMisuse, AModulePreparedTwice) {
  on_ranks(2, [](const Prepared& prepared) {
    expect_error(Status::kInvalidState, "prepared already",
                 [&] { prepared.accelerator->preparation().prepare_model(prepared.model, sharded()); });
    expect_error(Status::kInvalidState, "parameter 'first' belongs to a sharded model",
                 [&] { prepared.accelerator->preparation().prepare_model(prepared.inner, sharded()); });
    expect_error(Status::kInvalidState, "parameter 'weight' belongs to a sharded model",
                 [&] { prepared.accelerator->preparation().prepare_model(prepared.inner->find("block1"), {}); });
    prepared.train();  // nothing happened
  });
}

// A wrapped module gathers its parameters, as the model itself does.
TEST(ShardedMisuse, AGroupMayBeCalledOutsideOfItsModel) {
  on_ranks(2, [](const Prepared& prepared) {
    {
      const at::NoGradGuard no_grad;
      const at::Tensor hidden = at::linspace(-1, 1, 14).view({2, 7});
      EXPECT_TRUE(
          at::allclose(prepared.inner->find("block1")->call(hidden), make_model()->find("block1")->call(hidden)));
      EXPECT_TRUE(at::allclose(prepared.inner->call(rows_of_step(0)), make_model()->call(rows_of_step(0))));
    }
    prepared.train();
  });
}

TEST(ShardedMisuse, AModuleWithoutAGroupCalledOutsideOfItsModel) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings whole = sharded();
    whole.fsdp.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
    const auto inner = make_model();
    const auto model = accelerator->preparation().prepare_model(inner, whole);
    const at::Tensor hidden = at::linspace(-1, 1, 14).view({2, 7});
    expect_error(Status::kInvalidState, "'block1.weight' of the module 'block1' is not gathered",
                 [&] { inner->find("block1")->call(hidden); });
    accelerator->backward().run(model->call(rows_of_step(0)).square().mean());
  });
}

// As of a model with adapters: the group of the root is frozen, and is needed behind trained groups.
// Regression: frozen parameters of a sharded model were given back before the backward had used them, behind modules
// whose inputs need no gradients.
TEST(ShardedMisuse, AFrozenRootBehindTrainedGroups) {
  const auto run = [](int ranks, bool wraps) {
    return losses_of(ranks, 4, [wraps](const AcceleratorPtr& accelerator) {
      const auto inner = make_model();
      for (const char* const name : {"first", "last", "block1.weight"})
        nn::find_tensor(*inner, name).set_requires_grad(false);
      std::vector<at::Tensor> trained;
      for (const at::Tensor& parameter : inner->parameters())
        if (parameter.requires_grad()) trained.push_back(parameter);
      PrepareModelSettings settings = sharded();
      if (!wraps) settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
      return prepare(accelerator, inner, settings, trained);
    });
  };
  const std::vector<double> expected = run(1, true);
  for (const bool wraps : {true, false}) expect_near(run(2, wraps), expected);
}

TEST(ShardedMisuse, ForwardsMayComeInAnotherOrder) {
  for (const bool forward_prefetch : {false, true}) {
    const auto run = [forward_prefetch](int ranks) {
      return losses_of(ranks, 12, [forward_prefetch](const AcceleratorPtr& accelerator) {
        PrepareModelSettings settings = sharded();
        settings.fsdp.forward_prefetch = forward_prefetch;
        const auto inner = make_model();
        inner->set_forward([step = 0](nn::Module& self, const nn::Inputs& inputs) mutable -> c10::IValue {
          static constexpr size_t kOrders[4][3] = {{0, 1, 2}, {2, 1, 0}, {1, 1, 1}, {2, 0, 0}};
          at::Tensor x = at::linear(inputs[0].toTensor(), self.parameter(0));
          for (const size_t index : kOrders[step++ % 4]) x = self.children()[index].second->call(x);
          return at::linear(x, self.parameter(1));
        });
        return prepare(accelerator, inner, settings);
      });
    };
    expect_near(run(3), run(1));
  }
}

// On all ranks; the next step is as if it had not been.
TEST(ShardedMisuse, AForwardThatThrows) {
  for (const bool forward_prefetch : {false, true}) {
    const auto run = [forward_prefetch](bool throws) {
      std::array<bool, 2> now{};  // of each rank
      return losses_of(
          2, 4,
          [&](const AcceleratorPtr& accelerator) {
            PrepareModelSettings settings = sharded();
            settings.fsdp.forward_prefetch = forward_prefetch;
            const auto inner = make_model();
            const bool& fails = now.at(static_cast<size_t>(accelerator->state().process_index()));
            inner->find("block1")->hooks().add_pre_hook(
                [&fails](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
                  require(!fails, Status::kInvalidArgument, "the application failed");
                  return std::nullopt;
                });
            return prepare(accelerator, inner, settings);
          },
          [&](const Prepared& prepared, int step) {
            bool& fails = now.at(static_cast<size_t>(prepared.accelerator->state().process_index()));
            fails = throws && step > 0;
            if (fails) expect_error(Status::kInvalidArgument, "the application failed", [&] { prepared.loss(step); });
            fails = false;
            return prepared.loss(step);
          });
    };
    EXPECT_EQ(run(true), run(false));
  }
}

// A gather that was begun for it does not outlive it.
TEST(ShardedMisuse, AModelThatGoesInTheMiddleOfAForward) {
  tests::run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings = sharded();
    settings.fsdp.forward_prefetch = true;
    const auto inner = make_model();
    bool now = false;
    inner->find("block0")->hooks().add_post_hook(
        [&now](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
          require(!now, Status::kInvalidArgument, "the application failed");
          return std::nullopt;
        });
    auto model = accelerator->preparation().prepare_model(inner, settings);
    accelerator->backward().run(model->call(rows_of_step(0)).square().mean());
    now = true;
    expect_error(Status::kInvalidArgument, "the application failed", [&] { model->call(rows_of_step(1)); });
    model.reset();
    accelerator->free_memory();
    EXPECT_EQ(nn::find_tensor(*inner, "block1.weight").sizes()[1], 7);
    accelerator->state().communicator()->barrier();
  });
}

TEST(ShardedMisuse, TwoModelsInOneOptimizer) {
  const auto run = [](int ranks) {
    std::vector<nn::ModulePtr> others(static_cast<size_t>(ranks));  // of each rank
    return losses_of(
        ranks, 6,
        [&](const AcceleratorPtr& accelerator) {
          const auto first = make_model(), second = make_model();
          std::vector<at::Tensor> parameters = first->parameters();
          for (const at::Tensor& parameter : second->parameters()) parameters.push_back(parameter);
          const Prepared prepared = prepare(accelerator, first, sharded(), parameters);
          others.at(static_cast<size_t>(accelerator->state().process_index())) =
              accelerator->preparation().prepare_model(second, sharded());
          return prepared;
        },
        [&](const Prepared& prepared, int step) {
          nn::Module& other = *others.at(static_cast<size_t>(prepared.accelerator->state().process_index()));
          // In every other step one backward goes through both.
          const at::Tensor of_first = prepared.model->call(rows_of_step(step));
          const at::Tensor of_other = other.call(rows_of_step(step + 1));
          return (step % 2 == 0 ? of_first * of_other : of_other).square().mean();
        });
  };
  expect_near(run(2), run(1));
}

// As in gradual unfreezing, and when a part is no longer trained.
// Regression: the gradients of a parameter that was frozen when its model was sharded, and trained later, were lost.
TEST(ShardedMisuse, ParametersMayBeFrozenAndTrainedAgain) {
  const auto run = [](int ranks) {
    return losses_of(
        ranks, 9,
        [](const AcceleratorPtr& accelerator) {
          const auto inner = make_model();
          nn::find_tensor(*inner, "block1.weight").set_requires_grad(false);
          return prepare(accelerator, inner);
        },
        [](const Prepared& prepared, int step) {
          nn::find_tensor(*prepared.inner, "block1.weight").set_requires_grad(step >= 3);
          nn::find_tensor(*prepared.inner, "block2.bias").set_requires_grad(step < 3 || step >= 6);
          return prepared.loss(step);
        });
  };
  expect_near(run(2), run(1));
}

// The gradient of its inputs needs the frozen parameter when that of its trained one is there.
// Regression: frozen parameters of a module that runs twice were given back before the backward had used them.
TEST(ShardedMisuse, AFrozenParameterOfAModuleThatRunsTwice) {
  const auto run = [](int ranks) {
    return losses_of(ranks, 4, [](const AcceleratorPtr& accelerator) {
      const auto inner = make_model();
      const auto twice = std::make_shared<nn::CallbackModule>("Block");
      twice->add_parameter("frozen", at::linspace(-0.4, 0.5, 49).view({7, 7}), false);
      twice->add_parameter("scale", at::linspace(0.5, 1.5, 7));
      twice->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
        return at::linear(inputs[0].toTensor(), self.parameter(0)) * self.parameter(1);
      });
      inner->add_child("twice", twice);
      inner->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
        at::Tensor x = at::linear(inputs[0].toTensor(), self.parameter(0));
        for (const size_t child : {0, 3, 3}) x = self.children()[child].second->call(x);
        return at::linear(x, self.parameter(1));
      });
      return prepare(accelerator, inner, sharded(),
                     {nn::find_tensor(*inner, "first"), nn::find_tensor(*inner, "twice.scale")});
    });
  };
  expect_near(run(2), run(1));
}

}  // namespace sharded_misuse_test
}  // namespace accel::parallel
