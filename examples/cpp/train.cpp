// Trains a small network on the digits of a clock, on as many processes as the launcher starts:
//
//     accel launch --num-processes 2 -- ./train
#include "digits.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

using accel::Module;
using accel::Value;

constexpr int kEpochs = 3;

struct Run {
  accel::State& state;
  Module model;
  accel::Optimizer optimizer;
};

Module make_model() {
  return Module::sequential(
      {Module::linear(kSegments, 32, true), Module::activation("relu"), Module::linear(32, kDigits, true)});
}

// One pass over the data. Returns the mean of the loss, over the processes too.
double train_epoch(Run& run, accel::Dataloader& loader) {
  double total = 0;
  for (const Value& batch : loader) {
    const auto [inputs, labels] = batch.tensors<2>();
    const accel::Scope step = run.state.accumulate({run.model});
    accel::Tensor loss = accel::cross_entropy(run.model.call({inputs}).tensor(), labels);
    run.state.backward(loss);
    run.optimizer.step();
    run.optimizer.zero_grad();
    total += loss.item();
  }
  const accel::Tensor mean =
      accel::Tensor::full({}, total / static_cast<double>(loader.length()), ACCEL_DTYPE_FLOAT64, run.state.device());
  run.state.all_reduce(mean, ACCEL_REDUCE_MEAN);
  return mean.item();
}

struct Count {
  std::int64_t samples = 0, correct = 0;
};

// Counts the test samples, each of which comes to one process, and those that are recognised.
Count evaluate(Run& run, accel::Dataloader& loader) {
  const accel::Op argmax = accel::Op::find("aten::argmax", "");
  const accel::Scope no_grad = accel::no_grad();
  run.model.train(false);
  Count count;
  for (const Value& batch : loader) {
    const Value predictions = argmax.call({run.model.call({batch.at(0)}), 1}).front();
    // Without what was repeated to fill the last batch.
    const Value gathered = run.state.gather_for_metrics(Value::list({predictions, batch.at(1)}));
    const Value all = accel::send_to_device(gathered, {ACCEL_DEVICE_CPU, -1}, false, {});
    const auto [predicted, labels] = all.tensors<2>();
    const auto answers = predicted.span<const std::int64_t>(), expected = labels.span<const std::int64_t>();
    for (std::size_t i = 0; i < answers.size(); i++) count.correct += answers[i] == expected[i];
    count.samples += predicted.numel();
  }
  return count;
}

void train() {
  accel::StateOptions options;
  options.cpu = 1;
  options.gradient_accumulation_steps = 2;
  accel::State state = accel::State::create(options);
  state.set_seed(0, false, false);

  const Module model = make_model();
  accel::AdamOptions adam;
  adam.lr = 0.01;
  Run run{state, state.prepare_model(model), state.prepare_optimizer(accel::Optimizer::adamw(model, adam))};
  accel::Dataloader training = state.prepare_data_loader(make_loader(1, 1000, 16, true));
  accel::Dataloader test = state.prepare_data_loader(make_loader(2, 203, 16, false));

  const bool says = state.is_main_process();
  if (says)
    std::printf("processes: %d\nparameters: %lld\n", state.num_processes(),
                static_cast<long long>(model.num_parameters()));
  for (int epoch = 1; epoch <= kEpochs; epoch++) {
    const double loss = train_epoch(run, training);
    if (says) std::printf("epoch %d loss: %.4f\n", epoch, loss);
  }
  const Count count = evaluate(run, test);
  if (says)
    std::printf("test samples: %lld\naccuracy: %.4f\n", static_cast<long long>(count.samples),
                static_cast<double>(count.correct) / static_cast<double>(count.samples));
  state.end_training();
}

}  // namespace

int main() {
  try {
    train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
