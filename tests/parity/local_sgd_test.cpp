// SPDX-License-Identifier: Apache-2.0
// Weights that are averaged now and then, on 1, 2 and 3 processes.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "config/generated/settings/prepare/ddp.hpp"
#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "fixture.hpp"
#include "nn/callback_module.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "rank_threads.hpp"

namespace accel::parity {
namespace local_sgd_test {

nn::ModulePtr one_weight() {
  auto model = std::make_shared<nn::CallbackModule>("OneWeight");
  model->add_parameter("w", at::ones({}), true);
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    return module.parameter(0) * inputs[0].toTensor();
  });
  return model;
}

bool flag(const c10::IValue& list, size_t index) { return list.toListRef()[index].toBool(); }
double number(const c10::IValue& list, size_t index) { return list.toListRef()[index].toScalar().toDouble(); }

void run_rank(const c10::IValue& input, const c10::IValue& expected,
              const std::shared_ptr<comm::Communicator>& communicator) {
  const auto rank = static_cast<size_t>(communicator->rank());
  const nn::ModulePtr model = one_weight();
  const at::Tensor weight = model->parameters()[0];
  optim::ParameterOptimizer optimizer(optim::sgd_rule(), {{"lr", member(input, "lr").toScalar().toDouble()}});
  optimizer.add_group({weight}, std::nullopt, std::nullopt);
  const bool distributed = communicator->size() > 1;
  std::shared_ptr<parallel::DistributedDataParallel> ddp;
  if (distributed) ddp = std::make_shared<parallel::DistributedDataParallel>(model, communicator, DdpSettings{});
  std::unique_ptr<parallel::LocalSgd> local_sgd;
  if (distributed && member(input, "enabled").toBool()) {
    local_sgd = std::make_unique<parallel::LocalSgd>(ddp, communicator, member(input, "local_sgd_steps").toInt(),
                                                     LocalSgdSettings{}, nullptr);
  }
  const c10::IValue gradients = member(input, "gradients"), weights = member(expected, "w"),
                    averaged = member(expected, "averaged");
  const auto steps = static_cast<size_t>(member(input, "steps").toInt());
  for (size_t step = 0; step < steps; step++) {
    const at::Tensor x = at::full({1}, number(gradients.toListRef()[rank], step));
    nn::Module& called = distributed ? static_cast<nn::Module&>(*ddp) : *model;
    torch::autograd::backward({called.call(nn::Inputs{x}).toTensor().sum()}, {});
    optimizer.step();
    optimizer.zero_grad(/*set_to_none=*/true);
    const bool met = local_sgd != nullptr && local_sgd->step();
    EXPECT_EQ(met, flag(averaged, step)) << "step " << step;
    EXPECT_NEAR(weight.item<double>(), number(weights.toListRef()[rank], step), 1e-6) << "step " << step;
  }
  // Accelerate averages once more when the last step has done so; that changes nothing, and ours saves it.
  EXPECT_EQ(member(expected, "averaged_at_exit").toBool(), local_sgd != nullptr);
  if (local_sgd != nullptr) local_sgd->average_parameters();
  EXPECT_NEAR(weight.item<double>(), number(member(expected, "w_after_exit"), rank), 1e-6);
}

TEST(LocalSgdParity, AveragesAsTheReference) {
  for (const auto& test_case : read_cases("local_sgd")) {
    const auto processes = static_cast<int>(member(test_case.input, "processes").toInt());
    SCOPED_TRACE(test_case.name);
    tests::run_ranks(processes, [&](const auto& communicator) {
      SCOPED_TRACE(test_case.name + " rank " + std::to_string(communicator->rank()));
      run_rank(test_case.input, test_case.expected, communicator);
    });
  }
}

}  // namespace local_sgd_test
}  // namespace accel::parity
