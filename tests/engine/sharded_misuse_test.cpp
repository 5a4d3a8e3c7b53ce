// What a program may not do with a sharded model is an error that names the module or the parameter; what it may do
// works.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator_ranks.hpp"
#include "expect_error.hpp"
#include "fsdp_fixture.hpp"
#include "optim/rules.hpp"
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
    accelerator->backward(loss(step));
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

void on_ranks(int ranks, const std::function<void(const Prepared&)>& body) {
  tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
    Prepared prepared{accelerator, make_model(), nullptr, nullptr};
    const auto optimizer = adam_of(prepared.inner->parameters());
    prepared.model = accelerator->prepare_model(prepared.inner, sharded());
    prepared.optimizer = accelerator->prepare_optimizer(optimizer);
    body(prepared);
  });
}

// On all ranks, so that nobody waits.
void fails_in_the_next_forward(const std::string& part, const std::function<void(nn::CallbackModule& inner)>& change) {
  on_ranks(2, [&](const Prepared& prepared) {
    prepared.train();
    change(*prepared.inner);
    expect_error(Status::kInvalidState, part, [&] { prepared.loss(); });
  });
}

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
    tensor::set_data(inner.find_tensor("block0.bias"), at::zeros({7}));
  });
  fails_in_the_next_forward(expected, [](nn::CallbackModule& inner) {  // in other memory
    const at::Tensor bias = inner.find_tensor("block0.bias");
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

TEST(ShardedMisuse, AModulePreparedTwice) {
  on_ranks(2, [](const Prepared& prepared) {
    expect_error(Status::kInvalidState, "prepared already",
                 [&] { prepared.accelerator->prepare_model(prepared.model, sharded()); });
    expect_error(Status::kInvalidState, "parameter 'first' belongs to a sharded model",
                 [&] { prepared.accelerator->prepare_model(prepared.inner, sharded()); });
    expect_error(Status::kInvalidState, "parameter 'weight' belongs to a sharded model",
                 [&] { prepared.accelerator->prepare_model(prepared.inner->find("block1"), {}); });
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
    const auto model = accelerator->prepare_model(inner, whole);
    const at::Tensor hidden = at::linspace(-1, 1, 14).view({2, 7});
    expect_error(Status::kInvalidState, "'block1.weight' of the module 'block1' is not gathered",
                 [&] { inner->find("block1")->call(hidden); });
    accelerator->backward(model->call(rows_of_step(0)).square().mean());
  });
}

// As of a model with adapters: the group of the root is frozen, and is needed behind trained groups.
TEST(ShardedMisuse, AFrozenRootBehindTrainedGroups) {
  const auto run = [](int ranks, bool wraps) {
    std::vector<double> losses;
    tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const auto inner = make_model();
      for (const char* const name : {"first", "last", "block1.weight"})
        inner->find_tensor(name).set_requires_grad(false);
      std::vector<at::Tensor> trained;
      for (const at::Tensor& parameter : inner->parameters())
        if (parameter.requires_grad()) trained.push_back(parameter);
      const auto plain = adam_of(trained);
      PrepareModelSettings settings = sharded();
      if (!wraps) settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
      const auto model = accelerator->prepare_model(inner, settings);
      const auto optimizer = accelerator->prepare_optimizer(plain);
      for (int step = 0; step < 4; step++) {
        const at::Tensor loss = model->call(rows_of_step(step)).square().mean();
        accelerator->backward(loss);
        optimizer->step();
        optimizer->zero_grad(true);
        if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
      }
    });
    return losses;
  };
  const std::vector<double> expected = run(1, true);
  for (const bool wraps : {true, false}) {
    const std::vector<double> actual = run(2, wraps);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) EXPECT_NEAR(actual[i], expected[i], 1e-6 * expected[i]) << i;
  }
}

TEST(ShardedMisuse, ForwardsMayComeInAnotherOrder) {
  for (const bool forward_prefetch : {false, true}) {
    const auto run = [&](int ranks) {
      std::vector<double> losses;
      tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
        PrepareModelSettings settings = sharded();
        settings.fsdp.forward_prefetch = forward_prefetch;
        const auto inner = make_model();
        int step = 0;
        inner->set_forward([&step](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
          static constexpr size_t kOrders[4][3] = {{0, 1, 2}, {2, 1, 0}, {1, 1, 1}, {2, 0, 0}};
          at::Tensor x = at::linear(inputs[0].toTensor(), self.parameter(0));
          for (const size_t index : kOrders[step % 4]) x = self.children()[index].second->call(x);
          return at::linear(x, self.parameter(1));
        });
        const auto plain = adam_of(inner->parameters());
        const auto model = accelerator->prepare_model(inner, settings);
        const auto optimizer = accelerator->prepare_optimizer(plain);
        for (; step < 12; step++) {
          const at::Tensor loss = model->call(rows_of_step(step)).square().mean();
          accelerator->backward(loss);
          optimizer->step();
          optimizer->zero_grad(true);
          if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
        }
      });
      return losses;
    };
    const std::vector<double> expected = run(1), actual = run(3);  // each rank has all rows
    ASSERT_EQ(expected.size(), 12);
    ASSERT_EQ(actual.size(), 12);
    for (size_t i = 0; i < 12; i++) EXPECT_NEAR(actual[i], expected[i], 1e-6 * expected[i]) << i;
  }
}

// On all ranks; the next step is as if it had not been.
TEST(ShardedMisuse, AForwardThatThrows) {
  for (const bool forward_prefetch : {false, true}) {
    const auto run = [&](bool throws) {
      std::vector<double> losses;
      tests::run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
        PrepareModelSettings settings = sharded();
        settings.fsdp.forward_prefetch = forward_prefetch;
        const auto inner = make_model();
        bool now = false;
        inner->find("block1")->add_pre_hook([&now](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
          require(!now, Status::kInvalidArgument, "the application failed");
          return std::nullopt;
        });
        const auto plain = adam_of(inner->parameters());
        const auto model = accelerator->prepare_model(inner, settings);
        const auto optimizer = accelerator->prepare_optimizer(plain);
        for (int step = 0; step < 4; step++) {
          now = throws && step > 0;
          if (now)
            expect_error(Status::kInvalidArgument, "the application failed", [&] { model->call(rows_of_step(step)); });
          now = false;
          const at::Tensor loss = model->call(rows_of_step(step)).square().mean();
          accelerator->backward(loss);
          optimizer->step();
          optimizer->zero_grad(true);
          if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
        }
      });
      return losses;
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
    inner->find("block0")->add_post_hook(
        [&now](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
          require(!now, Status::kInvalidArgument, "the application failed");
          return std::nullopt;
        });
    auto model = accelerator->prepare_model(inner, settings);
    accelerator->backward(model->call(rows_of_step(0)).square().mean());
    now = true;
    expect_error(Status::kInvalidArgument, "the application failed", [&] { model->call(rows_of_step(1)); });
    model.reset();
    accelerator->free_memory();
    EXPECT_EQ(inner->find_tensor("block1.weight").sizes()[1], 7);
    accelerator->state().communicator()->barrier();
  });
}

TEST(ShardedMisuse, TwoModelsInOneOptimizer) {
  const auto run = [](int ranks) {
    std::vector<double> losses;
    tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const auto first = make_model(), second = make_model();
      std::vector<at::Tensor> parameters = first->parameters();
      for (const at::Tensor& parameter : second->parameters()) parameters.push_back(parameter);
      const auto plain = adam_of(parameters);
      const auto a = accelerator->prepare_model(first, sharded()), b = accelerator->prepare_model(second, sharded());
      const auto optimizer = accelerator->prepare_optimizer(plain);
      for (int step = 0; step < 6; step++) {
        // In every other step one backward goes through both.
        const at::Tensor of_a = a->call(rows_of_step(step)), of_b = b->call(rows_of_step(step + 1));
        const at::Tensor loss = (step % 2 == 0 ? of_a * of_b : of_b).square().mean();
        accelerator->backward(loss);
        optimizer->step();
        optimizer->zero_grad(true);
        if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
      }
    });
    return losses;
  };
  const std::vector<double> expected = run(1), actual = run(2);
  ASSERT_EQ(expected.size(), 6);
  ASSERT_EQ(actual.size(), 6);
  for (size_t i = 0; i < 6; i++) EXPECT_NEAR(actual[i], expected[i], 1e-6 * expected[i]) << i;
}

// As in gradual unfreezing, and when a part is no longer trained.
TEST(ShardedMisuse, ParametersMayBeFrozenAndTrainedAgain) {
  const auto run = [](int ranks) {
    std::vector<double> losses;
    tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
      const auto inner = make_model();
      const at::Tensor weight = inner->find_tensor("block1.weight"), bias = inner->find_tensor("block2.bias");
      weight.set_requires_grad(false);
      const auto plain = adam_of(inner->parameters());
      const auto model = accelerator->prepare_model(inner, sharded());
      const auto optimizer = accelerator->prepare_optimizer(plain);
      for (int step = 0; step < 9; step++) {
        weight.set_requires_grad(step >= 3);
        bias.set_requires_grad(step < 3 || step >= 6);
        const at::Tensor loss = model->call(rows_of_step(step)).square().mean();
        accelerator->backward(loss);
        optimizer->step();
        optimizer->zero_grad(true);
        if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
      }
    });
    return losses;
  };
  const std::vector<double> expected = run(1), actual = run(2);
  ASSERT_EQ(expected.size(), 9);
  ASSERT_EQ(actual.size(), 9);
  for (size_t i = 0; i < 9; i++) EXPECT_NEAR(actual[i], expected[i], 1e-6 * expected[i]) << i;
}

// The gradient of its inputs needs the frozen parameter when that of its trained one is there.
TEST(ShardedMisuse, AFrozenParameterOfAModuleThatRunsTwice) {
  const auto run = [](int ranks) {
    std::vector<double> losses;
    tests::run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
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
      const auto plain = adam_of({inner->find_tensor("first"), inner->find_tensor("twice.scale")});
      const auto model = accelerator->prepare_model(inner, sharded());
      const auto optimizer = accelerator->prepare_optimizer(plain);
      for (int step = 0; step < 4; step++) {
        const at::Tensor loss = model->call(rows_of_step(step)).square().mean();
        accelerator->backward(loss);
        optimizer->step();
        optimizer->zero_grad(true);
        if (accelerator->state().is_main_process()) losses.push_back(loss.item<double>());
      }
    });
    return losses;
  };
  const std::vector<double> expected = run(1), actual = run(2);
  ASSERT_EQ(actual.size(), 4);
  for (size_t i = 0; i < 4; i++) EXPECT_NEAR(actual[i], expected.at(i), 1e-6 * expected[i]) << i;
}

}  // namespace sharded_misuse_test
}  // namespace accel::parallel
