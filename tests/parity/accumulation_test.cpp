// SPDX-License-Identifier: Apache-2.0
// Which micro-batches exchange gradients and step, and what the weight is after each.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/prepared_dataloader.hpp"
#include "fixture.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"
#include "training_objects.hpp"

namespace accel::parity {
namespace accumulation_test {

using accelerator::MicroBatch;

struct Loop {
  std::shared_ptr<accelerator::PreparedModel> model;
  nn::ModulePtr inner;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<data::Loader> loader;
};

Loop prepare(accelerator::Accelerator& accelerator, int64_t batches) {
  Loop loop;
  loop.inner = one_weight(0);
  auto arguments = tree::new_map();
  arguments.insert("lr", 1.0);
  const auto sgd = make_optimizer("sgd", arguments, loop.inner);
  loop.model =
      std::dynamic_pointer_cast<accelerator::PreparedModel>(accelerator.preparation().prepare_model(loop.inner));
  loop.optimizer = accelerator.preparation().prepare_optimizer(sgd);
  const int64_t rows = batches * accelerator.state().num_processes();
  loop.loader = accelerator.preparation().prepare_data_loader(*make_loader({at::ones({rows, 1})}, 1), {});
  return loop;
}

void check_micro_batch(const tests::AcceleratorPtr& accelerator, const Loop& loop, const c10::IValue& batch,
                       const c10::IValue& expected) {
  {
    const MicroBatch micro_batch(accelerator, {loop.model});
    const state::GradientState& gradient_state = *accelerator->state().gradient_state();
    EXPECT_EQ(gradient_state.sync_gradients(), member(expected, "sync").toBool());
    EXPECT_EQ(loop.model->accumulation()->micro_batch, member(expected, "step").toInt());
    EXPECT_EQ(gradient_state.end_of_dataloader(), member(expected, "end").toBool());
    if (const auto exchanges = optional_member(expected, "ddp_sync")) {
      const bool former = loop.model->parallel()->set_gradient_sync(true);
      EXPECT_EQ(former, exchanges->toBool());
      loop.model->parallel()->set_gradient_sync(former);
    }
    accelerator->backward().run(loop.model->call(nn::Inputs{batch.toListRef()[0]}).toTensor().sum());
    loop.optimizer->step();
    loop.optimizer->zero_grad(/*set_to_none=*/true);
  }
  EXPECT_NEAR(nn::find_tensor(*loop.inner, "w").item<double>(), member(expected, "w").toScalar().toDouble(), 1e-6);
}

void check_case(const tests::AcceleratorPtr& accelerator, const c10::IValue& input, const c10::IValue& expected) {
  const Loop loop = prepare(*accelerator, member(input, "batches").toInt());
  const auto break_after = optional_member(input, "break_after");
  const c10::IValue epochs = member(expected, "epochs");
  for (size_t epoch = 0; epoch < epochs.toListRef().size(); epoch++) {
    loop.loader->set_epoch(static_cast<int64_t>(epoch));
    const auto rows = epochs.toListRef()[epoch].toListRef();
    size_t done = 0;
    while (const auto batch = loop.loader->next()) {
      ASSERT_LT(done, rows.size());
      check_micro_batch(accelerator, loop, *batch, rows[done]);
      done++;
      if (break_after && done == static_cast<size_t>(break_after->toInt())) break;
    }
    EXPECT_EQ(done, rows.size());
  }
}

TEST(AccumulationParity, SameExchangesAndWeightsAsTheReference) {
  int compared = 0;
  for (const auto& test_case : read_cases("accumulation")) {
    SCOPED_TRACE(test_case.name);
    const c10::IValue& input = test_case.input;
    StateSettings options;
    options.gradient_accumulation_steps = member(input, "num_steps").toInt();
    options.sync_with_dataloader = member(input, "sync_with_dataloader").toBool();
    options.sync_each_batch = member(input, "sync_each_batch").toBool();
    tests::run_accelerators(
        static_cast<int>(member(input, "processes").toInt()), options,
        [&](const tests::AcceleratorPtr& accelerator) { check_case(accelerator, input, test_case.expected); });
    compared++;
  }
  EXPECT_GT(compared, 50);
}

}  // namespace accumulation_test
}  // namespace accel::parity
