// A model of this program whose layers are split over the processes: each has half of the hidden units, and all work on
// the same batches:
//
//     accel launch --num-processes 2 --parallelism-config-tp-size 2 -- ./split_model
#include "digits.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

using accel::Module;
using accel::Tensor;
using accel::Value;

constexpr int kHidden = 32, kEpochs = 3;

// Small numbers, the same in every language.
Tensor weights(std::uint32_t random, std::int64_t rows, std::int64_t columns) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < rows * columns; i++) {
    random = random * 1664525u + 1013904223u;
    numbers.push_back(static_cast<float>(random >> 24) / 512 - 0.25f);
  }
  return Tensor::from_data(numbers.data(), {rows, columns}, ACCEL_DTYPE_FLOAT32);
}

// `group` has the processes that share the layers.
Module make_network(accel::State group) {
  Module module = Module::create("FeedForward");
  module.add_parameter("up", weights(3, kHidden, kSegments), true);
  module.add_parameter("down", weights(4, kDigits, kHidden), true);
  module.add_parameter("bias", Tensor::full({kDigits}, 0, ACCEL_DTYPE_FLOAT32, {ACCEL_DEVICE_CPU, -1}), true);
  module.set_forward(
      [group, linear = accel::Op::find("aten::linear", ""), relu = accel::Op::find("aten::relu", ""),
       add = accel::Op::find("aten::add", "Tensor")](const Module& self, const std::vector<Value>& inputs) mutable {
        const Tensor x = group.parallel_copy(inputs.at(0).tensor());
        const Value hidden = relu.call(linear.call({x, self.tensor("up")})).front();  // the units of this process
        const Value terms = linear.call({hidden, self.tensor("down")}).front();
        return add.call({group.parallel_reduce(terms.tensor()), self.tensor("bias")}).front();
      });
  return module;
}

double train_epoch(accel::State& state, Module& model, accel::Optimizer& optimizer, accel::Dataloader& loader) {
  double total = 0;
  for (const Value& batch : loader) {
    const auto [inputs, labels] = batch.tensors<2>();
    Tensor loss = accel::cross_entropy(model.call({inputs}).tensor(), labels);
    state.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    total += loss.item();
  }
  return total / static_cast<double>(loader.length());
}

void print_shape(const char* what, const Tensor& tensor) {
  const std::vector<std::int64_t> shape = tensor.shape();
  std::printf("%s: %lld x %lld\n", what, static_cast<long long>(shape[0]), static_cast<long long>(shape[1]));
}

void train() {
  accel::StateOptions options;
  options.cpu = 1;
  accel::State state = accel::State::create(options);
  state.set_seed(0, false, false);
  const Module network = make_network(state.mesh().group("tensor"));
  accel::TensorParallelOptions splitting;
  splitting.plan = "up colwise; down rowwise";
  accel::PrepareModelOptions preparing;
  preparing.tensor_parallel = &splitting;
  Module model = state.prepare_model(network, preparing);
  accel::AdamOptions adam;
  adam.lr = 0.01;
  accel::Optimizer optimizer = state.prepare_optimizer(accel::Optimizer::adamw(network, adam));
  accel::Dataloader loader = state.prepare_data_loader(make_loader(1, 320, 16, true));

  const bool says = state.is_main_process();
  if (says) std::printf("processes: %d\n", state.num_processes());
  if (says) print_shape("up here", network.tensor("up"));
  for (int epoch = 1; epoch <= kEpochs; epoch++) {
    const double loss = train_epoch(state, model, optimizer, loader);
    if (says) std::printf("epoch %d loss: %.4f\n", epoch, loss);
  }
  const Value saved = state.get_state_dict(model);  // whole, on the main process
  if (says) print_shape("up saved", saved.at("up").tensor());
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
