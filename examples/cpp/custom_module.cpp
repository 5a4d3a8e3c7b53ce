// A module whose forward is a function of this program. LibTorch's autograd goes through it, and data parallelism,
// optimizers and checkpoints take it as any other:
//
//     accel launch --num-processes 2 -- ./custom_module
#include <accel.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

using accel::Module;
using accel::Tensor;
using accel::Value;

constexpr int kPoints = 16, kSteps = 100;

// x * weight + bias
Module make_affine(int& calls) {
  Module module = Module::create("Affine");
  for (const char* name : {"weight", "bias"})
    module.add_parameter(name, Tensor::full({1}, 0, ACCEL_DTYPE_FLOAT32, {ACCEL_DEVICE_CPU, -1}), true);
  module.set_forward(
      [&calls, mul = accel::Op::find("aten::mul", "Tensor"), add = accel::Op::find("aten::add", "Tensor")](
          const Module& self, const std::vector<Value>& inputs) {
        if (inputs.size() != 1) throw std::runtime_error("Affine takes 1 input, got " + std::to_string(inputs.size()));
        calls++;
        const Value product = mul.call({inputs[0], self.tensor("weight")}).front();
        return add.call({product, self.tensor("bias")}).front();
      });
  return module;
}

// One step on y = 3 x - 1. Returns this process's loss.
Tensor train_step(accel::State& state, Module& model, accel::Optimizer& optimizer, const Tensor& x, const Tensor& y) {
  static const accel::Op mse_loss = accel::Op::find("aten::mse_loss", "");
  Tensor loss = mse_loss.call({model.call({x}), y}).front().tensor();
  state.backward(loss);
  optimizer.step();
  optimizer.zero_grad();
  return loss;
}

void train() {
  accel::StateOptions options;
  options.cpu = 1;
  accel::State state = accel::State::create(options);
  state.set_seed(0, false, false);
  int calls = 0;
  const Module module = make_affine(calls);
  Module model = state.prepare_model(module);
  accel::SgdOptions sgd;
  sgd.lr = 0.5;
  accel::Optimizer optimizer = state.prepare_optimizer(accel::Optimizer::sgd(module, sgd));

  std::vector<float> x_data, y_data;
  for (int i = state.process_index(); i < kPoints; i += state.num_processes()) {
    x_data.push_back(-1 + static_cast<float>(i) / 8);
    y_data.push_back(3 * x_data.back() - 1);
  }
  const auto count = static_cast<std::int64_t>(x_data.size());
  const auto on_device = [&](const std::vector<float>& data) {
    return Tensor::from_data(data.data(), {count}, ACCEL_DTYPE_FLOAT32).to(ACCEL_DTYPE_FLOAT32, state.device(), false);
  };
  const Tensor x = on_device(x_data), y = on_device(y_data);

  const bool says = state.is_main_process();
  if (says) std::printf("kind: %s\n", module.kind());
  for (int step = 1; step <= kSteps; step++) {
    const Tensor loss = train_step(state, model, optimizer, x, y);
    if (step != 1 && step != kSteps) continue;
    const double mean = state.reduce(loss, ACCEL_REDUCE_MEAN, 1).tensor().item();
    if (says) std::printf("step %d loss: %.4f\n", step, mean);
  }
  if (says) {
    std::printf("weight: %.4f\nbias: %.4f\n", module.tensor("weight").item(), module.tensor("bias").item());
    std::printf("forward calls: %d\n", calls);
  }

  // What goes wrong inside the callback comes out of the call around it.
  try {
    model.call({x, x});
  } catch (const std::runtime_error& error) {
    if (says) std::printf("error: %s\n", error.what());
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
