// SPDX-License-Identifier: Apache-2.0
#include "cpp_test.hpp"

namespace training_test {

using accel::Dataloader;
using accel::Dataset;
using accel::Module;
using accel::Op;
using accel::Optimizer;
using accel::Scheduler;
using accel::Scope;
using accel::State;
using accel::Tensor;
using accel::Value;

class CppTraining : public CppTest {};

TEST_F(CppTraining, SmallNetworkLearns) {
  accel::StateOptions options;
  options.cpu = 1;
  options.gradient_accumulation_steps = 2;
  State state = State::create(options);
  state.set_seed(5, false, false);

  const Op mse_loss = Op::find("aten::mse_loss", "");
  const Tensor x = Tensor::randn({64, 2}, ACCEL_DTYPE_FLOAT32, state.device());
  const Tensor y = Op::find("aten::sum", "dim_IntList").call({x, Value::list({1}), true}).at(0).tensor();

  accel::AdamOptions adam;
  adam.lr = 0.02;
  accel::DataloaderOptions loading;
  loading.batch_size = 16;
  loading.shuffle = 1;
  Module model = state.prepare_model(
      Module::sequential({Module::linear(2, 8, true), Module::activation("tanh"), Module::linear(8, 1, true)}));
  Optimizer optimizer = state.prepare_optimizer(Optimizer::adamw(model, adam));
  Scheduler scheduler = state.prepare_scheduler(Scheduler::linear_warmup(optimizer, 2, 1000));
  Dataloader loader = state.prepare_data_loader(Dataloader::create(Dataset::tensors({x, y}), loading));
  EXPECT_EQ(loader.length(), 4);

  double first = -1, last = -1;
  int steps = 0;
  for (int epoch = 0; epoch < 40; epoch++) {
    while (const std::optional<Value> batch = loader.next()) {
      const Scope accumulation = state.accumulate({model});
      const Value prediction = model.call({batch->at(0)});
      const Tensor loss = mse_loss.call({prediction, batch->at(1)}).at(0).tensor();
      state.backward(loss);
      EXPECT_EQ(state.clip_grad_norm(model, 10, 2).has_value(), state.sync_gradients());
      if (optimizer.step()) steps++;
      scheduler.step();
      optimizer.zero_grad();
      last = loss.item();
      if (first < 0) first = last;
    }
  }
  EXPECT_EQ(steps, 80);
  EXPECT_LT(last, first / 20);
  accel::UnwrapModelOptions as_before;
  as_before.keep_fp32_wrapper = 0;
  EXPECT_EQ(state.unwrap_model(model, as_before).num_parameters(), 33);
  state.end_training();
}

TEST_F(CppTraining, LoadersAreRanges) {
  accel::DataloaderOptions loading;
  loading.batch_size = 2;
  Dataloader loader = Dataloader::create(Dataset::tensors({vector_of({1, 2, 3, 4, 5})}), loading);
  std::vector<std::string> seen;
  for (int epoch = 0; epoch < 2; epoch++) {
    for (const Value& batch : loader) {
      const auto [numbers] = batch.tensors<1>();
      seen.push_back(json_of(numbers));
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"[1.0,2.0]", "[3.0,4.0]", "[5.0]", "[1.0,2.0]", "[3.0,4.0]", "[5.0]"}));
  // A loop that is left goes on where it was.
  for (const Value& batch : loader) {
    EXPECT_EQ(batch.size(), 1u);
    break;
  }
  EXPECT_EQ(json_of(loader.next()->at(0).tensor()), "[3.0,4.0]");
  EXPECT_EQ(std::distance(loader.begin(), Dataloader::end()), 1);
}

}  // namespace training_test
