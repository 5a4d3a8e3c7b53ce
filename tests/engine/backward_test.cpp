// SPDX-License-Identifier: Apache-2.0
// How to back-propagate: graphs that stay, gradients of gradients, chosen inputs; also through prepared models.
#include "tensor/autograd/backward.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <mutex>

#include "accelerator/prepared_model.hpp"
#include "accelerator_ranks.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"

namespace accel::accelerator {
namespace backward_test {

using tensor::BackwardOptions;
using tests::AcceleratorPtr;
using tests::expect_error;
using tests::run_accelerators;

at::Tensor leaf(double value) { return at::tensor({value}).set_requires_grad(true); }

TEST(Backward, KeepsTheGraphWhenAsked) {
  const at::Tensor x = leaf(3);
  const at::Tensor y = x * x;
  BackwardOptions keep;
  keep.retain_graph = true;
  tensor::backward(y, keep);
  tensor::backward(y, {});
  EXPECT_EQ(x.grad().item<double>(), 12);
  EXPECT_THROW(tensor::backward(y, {}), c10::Error) << "the graph is freed";
}

TEST(Backward, GradientsOfGradients) {
  const at::Tensor x = leaf(2);
  BackwardOptions create;
  create.create_graph = true;
  tensor::backward(x * x * x, create);
  const at::Tensor first = x.grad();
  EXPECT_EQ(first.item<double>(), 12);
  x.mutable_grad().reset();
  tensor::backward(first, {});
  EXPECT_EQ(x.grad().item<double>(), 12) << "6 x";
  x.mutable_grad().reset();
}

TEST(Backward, OnlyForTheInputs) {
  const at::Tensor x = leaf(2), w = leaf(5);
  BackwardOptions only;
  only.inputs = {x};
  tensor::backward(x * w, only);
  EXPECT_EQ(x.grad().item<double>(), 5);
  EXPECT_FALSE(w.grad().defined());
}

TEST(Backward, FromAGradient) {
  const at::Tensor x = at::arange(3, at::kDouble).set_requires_grad(true);
  BackwardOptions from;
  from.gradient = at::tensor({1.0, 10.0, 100.0});
  const at::Tensor y = x * x;
  tensor::check_backward(y, from);
  tensor::backward(y, from);
  EXPECT_TRUE(at::allclose(x.grad(), at::tensor({0.0, 20.0, 400.0})));
}

TEST(Backward, RefusesWhatItCannotBeginFrom) {
  const at::Tensor x = leaf(2);
  const at::Tensor y = at::cat({x, x});
  BackwardOptions options;
  expect_error(Status::kShapeMismatch, "one element", [&] { tensor::check_backward(y, options); });
  options.gradient = at::ones({3});
  expect_error(Status::kShapeMismatch, "expected [2]", [&] { tensor::check_backward(y, options); });
  options = {};
  options.inputs = std::vector<at::Tensor>();
  expect_error(Status::kInvalidArgument, "no tensors", [&] { tensor::check_backward(x * x, options); });
  options.inputs = {at::ones({1})};
  expect_error(Status::kInvalidArgument, "requires no gradient", [&] { tensor::check_backward(x * x, options); });
  options.inputs = {x * x};
  expect_error(Status::kInvalidArgument, "was computed", [&] { tensor::check_backward(x * x, options); });
}

nn::ModulePtr critic() {
  auto model = std::make_shared<nn::CallbackModule>("Critic");
  model->add_parameter("first", at::arange(12, at::kFloat).reshape({4, 3}) * 0.1F - 0.5F);
  model->add_parameter("second", at::arange(4, at::kFloat).reshape({1, 4}) * 0.2F - 0.3F);
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor hidden = at::tanh(at::linear(inputs[0].toTensor(), nn::find_tensor(module, "first")));
    return at::linear(hidden, nn::find_tensor(module, "second"));
  });
  return model;
}

// The mean over the rows of (|gradient of the row's score| - 1)^2, and of the scores.
at::Tensor penalised(Accelerator& accelerator, const nn::ModulePtr& model, const at::Tensor& rows) {
  const at::Tensor x = rows.clone().set_requires_grad(true);
  const at::Tensor scores = model->call(x);
  BackwardOptions create;
  create.create_graph = true;
  create.inputs = {x};
  tensor::backward(scores.sum(), create);
  const at::Tensor penalty = (x.grad().norm(2, -1) - 1).square().mean();
  accelerator.backward().run(penalty + scores.mean());
  const at::Tensor gradients =
      at::cat({model->parameters()[0].grad().flatten(), model->parameters()[1].grad().flatten()});
  x.mutable_grad().reset();
  return gradients.clone();
}

// The penalty's gradients of the parameters are averaged over the ranks as all others.
TEST(Backward, AGradientPenaltyThroughAPreparedModel) {
  const at::Tensor rows = (at::arange(12, at::kFloat).reshape({4, 3}) - 5) * 0.3F;
  at::Tensor expected;
  run_accelerators(1, {}, [&](const AcceleratorPtr& accelerator) {
    expected = penalised(*accelerator, accelerator->preparation().prepare_model(critic()), rows);
  });
  std::vector<at::Tensor> found(2);
  run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    const nn::ModulePtr model = accelerator->preparation().prepare_model(critic());
    for (int step = 0; step < 2; step++) {  // and the model goes on
      for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
      found[rank] = penalised(*accelerator, model, rows.slice(0, 2 * rank, 2 * rank + 2));
    }
  });
  for (const at::Tensor& gradients : found) EXPECT_TRUE(at::allclose(gradients, expected, 1e-5, 1e-6));
}

TEST(Backward, OfASumWithAnotherLossOfTheSameGraph) {
  run_accelerators(1, {}, [&](const AcceleratorPtr& accelerator) {
    const at::Tensor x = leaf(3);
    const at::Tensor y = x * x;
    BackwardOptions keep;
    keep.retain_graph = true;
    accelerator->backward().run_sum(y, 2, keep);
    EXPECT_EQ(x.grad().item<double>(), 3) << "half of 6";
    EXPECT_NO_THROW(tensor::backward(y, {}));
  });
}

// Regression: `evaluation_mode` had no effect where models are sharded: each rank got rank 0's weights, in parts.
TEST(Backward, AnEvaluatedModelIsEachRanksOwn) {
  for (const bool sharded : {false, true})
    run_accelerators(2, {}, [&](const AcceleratorPtr& accelerator) {
      const int rank = accelerator->state().process_index();
      const nn::ModulePtr inner = critic();
      inner->parameters()[0].detach().fill_(static_cast<float>(rank));
      PrepareModelSettings preparation;
      preparation.evaluation_mode = true;
      preparation.fsdp.enabled = sharded;
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, preparation);
      EXPECT_EQ(inner->parameters()[0][0][0].item<float>(), rank) << "rank 0's weights were not sent";
      EXPECT_EQ(parallel_model_of(model)->exchange(), nullptr);
      EXPECT_FALSE(!nn::placements(*inner).empty());
      if (rank == 0) {
        EXPECT_EQ(model->call(at::ones({1, 3})).numel(), 1) << "with nobody to wait for";
      }
    });
}

}  // namespace backward_test
}  // namespace accel::accelerator
