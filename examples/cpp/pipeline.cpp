// A model in stages: each process has some of its layers, and the rows of a batch pass from one to the next:
//
//     accel launch --num-processes 2 --parallelism-config-pp-size 2 -- ./pipeline
#include "digits.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

using accel::Module;
using accel::Value;

constexpr int kHidden = 32, kEpochs = 3;

Module make_network() {
  return Module::sequential({Module::linear(kSegments, kHidden, true), Module::activation("relu"),
                             Module::linear(kHidden, kHidden, true), Module::activation("relu"),
                             Module::linear(kHidden, kDigits, true)});
}

double train_epoch(accel::State& state, Module& model, accel::Optimizer& optimizer, accel::Dataloader& loader) {
  double total = 0;
  for (const Value& batch : loader) {
    // Forwards and backwards of the micro-batches.
    total += state.pipeline_step(model, batch.at(0), batch.at(1), "cross_entropy");
    optimizer.step();
    optimizer.zero_grad();
  }
  return total / static_cast<double>(loader.length());
}

void train() {
  accel::StateOptions options;
  options.cpu = 1;
  accel::State state = accel::State::create(options);
  state.set_seed(0, false, false);
  accel::PipelineOptions stages;
  stages.micro_batches = 4;
  stages.split = "parameters";
  accel::PrepareModelOptions preparing;
  preparing.pipeline = &stages;
  Module model = state.prepare_model(make_network(), preparing);
  accel::AdamOptions adam;
  adam.lr = 0.01;
  accel::Optimizer optimizer = state.prepare_optimizer(accel::Optimizer::adamw(model, adam));
  accel::Dataloader loader = state.prepare_data_loader(make_loader(1, 320, 16, true));

  const bool says = state.is_main_process();
  if (says) std::printf("processes: %d\n", state.num_processes());
  if (says) std::printf("parameters here: %lld\n", static_cast<long long>(model.num_parameters()));
  for (int epoch = 1; epoch <= kEpochs; epoch++) {
    const double loss = train_epoch(state, model, optimizer, loader);
    if (says) std::printf("epoch %d loss: %.4f\n", epoch, loss);
  }
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
