// A run that is saved, thrown away and resumed continues as if nothing had happened, bit for bit:
//
//     accel launch --num-processes 2 -- ./checkpoint FOLDER
#include "digits.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using accel::Module;
using accel::Value;

constexpr int kSteps = 6, kSavedAfter = 3;

Module make_model() {
  return Module::sequential({Module::linear(kSegments, 32, true), Module::activation("relu"), Module::dropout(0.1),
                             Module::linear(32, kDigits, true)});
}

// Everything that trains, prepared.
class Run {
 public:
  Run(accel::State& state, std::int64_t seed) : state_(state) {
    state.set_seed(seed, false, false);
    const Module model = make_model();
    accel::AdamOptions adam;
    adam.lr = 0.01;
    const accel::Optimizer optimizer = accel::Optimizer::adamw(model, adam);
    const accel::Scheduler scheduler = accel::Scheduler::cosine(optimizer, 2, 12, 0);
    const accel::Dataloader loader = make_loader(1, 96, 8, true);
    model_ = state.prepare_model(model);
    optimizer_ = state.prepare_optimizer(optimizer);
    scheduler_ = state.prepare_scheduler(scheduler);
    loader_ = state.prepare_data_loader(loader);
  }

  // Returns the mean of the processes' losses.
  double step() {
    const Value batch = next_batch();
    const accel::Scope step = state_.accumulate({model_});
    accel::Tensor loss = accel::cross_entropy(model_.call({batch.at(0)}).tensor(), batch.at(1).tensor());
    state_.backward(loss);
    optimizer_.step();
    scheduler_.step();
    optimizer_.zero_grad();
    return state_.reduce(loss, ACCEL_REDUCE_MEAN, 1).tensor().item();
  }

 private:
  Value next_batch() {
    if (std::optional<Value> batch = loader_.next()) return *std::move(batch);
    return loader_.next().value();  // of the next epoch
  }

  accel::State& state_;
  Module model_;
  accel::Optimizer optimizer_;
  accel::Scheduler scheduler_;
  accel::Dataloader loader_;
};

bool train(const std::string& folder) {
  accel::StateOptions options;
  options.cpu = 1;
  accel::State state = accel::State::create(options);
  const bool says = state.is_main_process();

  double losses[kSteps];
  {
    Run run(state, 0);
    for (int step = 1; step <= kSteps; step++) {
      losses[step - 1] = run.step();
      if (says) std::printf("step %d loss: %.4f\n", step, losses[step - 1]);
      if (step == kSavedAfter) state.save_state(folder.c_str());
    }
  }
  state.free_memory();
  if (says) std::printf("saved after step: %d\n", kSavedAfter);

  Run run(state, 1);  // other weights, which are replaced
  state.load_state(folder.c_str());
  bool equal = true;
  for (int step = kSavedAfter + 1; step <= kSteps; step++) {
    const double loss = run.step();
    equal = equal && loss == losses[step - 1];
    if (says) std::printf("resumed step %d loss: %.4f\n", step, loss);
  }
  if (says) std::printf("equal: %s\n", equal ? "true" : "false");
  state.end_training();
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    return train(argv[1]) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
