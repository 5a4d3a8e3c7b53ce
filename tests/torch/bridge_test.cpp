// SPDX-License-Identifier: Apache-2.0
// Programs that use LibTorch themselves. Only public headers: this is what such a program sees.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>
#include <accel_torch.hpp>

#include <string>
#include <thread>
#include <vector>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    last = register_module("last", torch::nn::Linear(8, 3));
    scale = register_parameter("scale", torch::ones({1}));
  }
  at::Tensor forward(const at::Tensor& input) { return last(at::tanh(norm(hidden(input)))) * scale; }

  torch::nn::Linear hidden{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Net);

Net new_net() {
  torch::manual_seed(7);
  return Net();
}

at::Tensor some_input(int64_t rows) { return at::arange(rows * 4, at::kFloat).reshape({rows, 4}).sin(); }
at::Tensor some_labels(int64_t rows) { return at::arange(rows, at::kLong).remainder(3); }

void check(accel_status_t status) { ASSERT_GE(status, 0) << accel_last_error(); }

// The message of the exception that `body` throws; "" when it throws none.
template <typename Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in '" << message << "'";
}

at::Tensor call(accel_module_t* module, const std::vector<at::Tensor>& inputs) {
  std::vector<accel::TensorHandle> handles;
  std::vector<accel_value_t> values;
  for (const at::Tensor& input : inputs) {
    handles.push_back(accel::tensor_from_torch(input));
    values.push_back(accel_arg_tensor(handles.back().get()));
  }
  accel_value_t output = ACCEL_VALUE_INIT;
  if (accel_module_call(module, values.data(), values.size(), &output) < 0)
    throw std::runtime_error(accel_last_error());
  const at::Tensor result = accel::tensor_to_torch(output.as.tensor);
  accel_value_dispose(&output);
  return result;
}

class Bridge : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(accel_debug_live_objects(), 0); }
};

TEST_F(Bridge, TensorsKeepTheirIdentityAndHistory) {
  const at::Tensor leaf = torch::ones({2, 3}, at::requires_grad());
  const at::Tensor sum = leaf.mul(2).sum();
  const size_t owners = sum.use_count();
  {
    const accel::TensorHandle handle = accel::tensor_from_torch(sum);
    EXPECT_EQ(sum.use_count(), owners + 1);
    const at::Tensor back = accel::tensor_to_torch(handle.get());
    EXPECT_TRUE(back.is_same(sum));
    EXPECT_EQ(back.grad_fn(), sum.grad_fn());
    check(accel_tensor_backward(handle.get(), nullptr));
  }
  EXPECT_EQ(sum.use_count(), owners);
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({2, 3}, 2.0)));
}

TEST_F(Bridge, ATensorOutlivesTheHandle) {
  accel_tensor_t* made = nullptr;
  const int64_t shape[] = {2};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  check(accel_tensor_full(shape, 1, 1.5, ACCEL_DTYPE_FLOAT32, &cpu, &made));
  const at::Tensor tensor = accel::tensor_to_torch(made);
  accel_tensor_release(made);
  EXPECT_EQ(tensor.use_count(), 1U);
  EXPECT_EQ(tensor.sum().item<double>(), 3.0);
}

TEST_F(Bridge, WrongTensorsAreRefused) {
  expect_part(message_of([] { accel::tensor_from_torch(at::Tensor()); }), "undefined");
  expect_part(message_of([] { accel::tensor_to_torch(nullptr); }), "tensor is NULL");
}

TEST_F(Bridge, AnotherVersionIsRefusedAndTheReferenceStays) {
  at::Tensor tensor = at::ones({2});
  accel_tensor_t* handle = nullptr;
  EXPECT_EQ(accel_tensor_from_torch(tensor.unsafeGetTensorImpl(), "1.0.0", &handle), ACCEL_ERROR_UNSUPPORTED);
  expect_part(accel_last_error(), "1.0.0");
  expect_part(accel_last_error(), TORCH_VERSION);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(tensor.use_count(), 1U);

  const accel::TensorHandle good = accel::tensor_from_torch(tensor);
  void* reference = nullptr;
  EXPECT_EQ(accel_tensor_to_torch(good.get(), "1.0.0", &reference), ACCEL_ERROR_UNSUPPORTED);
  EXPECT_EQ(reference, nullptr);
}

TEST_F(Bridge, AFailureGivesTheReferenceBack) {
  const at::Tensor tensor = at::ones({2});
  void* const reference = at::Tensor(tensor).unsafeReleaseTensorImpl();
  EXPECT_EQ(accel_tensor_from_torch(reference, TORCH_VERSION, nullptr), ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tensor.use_count(), 1U);
}

TEST_F(Bridge, AModuleHasTheVeryTensorsUnderTheirNames) {
  const Net net = new_net();
  const accel::ModuleHandle module = accel::module_from_torch(net);
  for (const auto& parameter : net->named_parameters()) {
    accel_tensor_t* found = nullptr;
    check(accel_module_tensor(module.get(), parameter.key().c_str(), &found));
    EXPECT_TRUE(accel::tensor_to_torch(found).is_same(parameter.value())) << parameter.key();
    accel_tensor_release(found);
  }
  accel_value_t state_dict = ACCEL_VALUE_INIT;
  check(accel_module_state_dict(module.get(), &state_dict));
  EXPECT_EQ(accel_value_count(&state_dict), net->named_parameters().size() + net->named_buffers().size());
  accel_value_dispose(&state_dict);
}

TEST_F(Bridge, ItsForwardIsTheModulesInTrainingAndEvaluation) {
  Net net = new_net(), expected = new_net();
  const accel::ModuleHandle module = accel::module_from_torch(net);
  EXPECT_TRUE(at::equal(call(module.get(), {some_input(6)}), expected->forward(some_input(6))));
  check(accel_module_train(module.get(), 0));
  expected->eval();
  EXPECT_TRUE(at::equal(call(module.get(), {some_input(6)}), expected->forward(some_input(6))));
  EXPECT_FALSE(net->norm->is_training());
  check(accel_module_train(module.get(), 1));
  call(module.get(), {some_input(6)});
  EXPECT_TRUE(net->norm->is_training());
}

TEST_F(Bridge, ModulesOfOtherKindsWork) {
  torch::nn::Sequential stack(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
  const accel::ModuleHandle sequential = accel::module_from_torch(stack);
  check(accel_module_train(sequential.get(), 0));
  const at::Tensor evaluated = call(sequential.get(), {some_input(2)});
  EXPECT_TRUE(at::equal(evaluated, stack->forward(some_input(2))));

  torch::nn::Bilinear bilinear(4, 4, 2);
  const accel::ModuleHandle pair =
      accel::module_from_torch(bilinear.ptr(), [bilinear](const std::vector<at::Tensor>& inputs) mutable {
        return bilinear->forward(inputs.at(0), inputs.at(1));
      });
  const at::Tensor output = call(pair.get(), {some_input(3), some_input(3)});
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{3, 2}));
}

TEST_F(Bridge, ErrorsOfAForwardComeOut) {
  const Net net = new_net();
  const accel::ModuleHandle module = accel::module_from_torch(net);
  expect_part(message_of([&] { call(module.get(), {}); }), "0 inputs");
  expect_part(message_of([&] { call(module.get(), {at::ones({2, 5})}); }), "mat1 and mat2");
  const accel_value_t number = accel_arg_int(3);
  accel_value_t output = ACCEL_VALUE_INIT;
  EXPECT_EQ(accel_module_call(module.get(), &number, 1, &output), ACCEL_ERROR_USER);
  expect_part(accel_last_error(), "input 0 is not a tensor");
  expect_part(message_of([] { accel::module_from_torch(std::shared_ptr<NetImpl>()); }), "no module");
}

// A port that nobody listens on at this moment.
int32_t free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(descriptor);
  return ntohs(address.sin_port);
}

// A learning rate that is a power of two: its product with a gradient is exact, so a fused kernel rounds as two steps
// do.
constexpr double kLearningRate = 0.25;
constexpr int kSteps = 20;

// Trains `net` as one rank of several, each on its rows of the batch, and gives the losses.
std::vector<double> train(const Net& net, int32_t rank, int32_t ranks, int32_t port, at::Tensor input,
                          at::Tensor labels) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.process_index = rank;
  options.num_processes = ranks;
  options.main_process_port = port;
  accel_state_t* state = nullptr;
  accel_module_t* model = nullptr;
  accel_optimizer_t *plain = nullptr, *optimizer = nullptr;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  sgd.lr = kLearningRate;
  std::vector<double> losses;
  const accel::ModuleHandle module = accel::module_from_torch(net);
  check(accel_state_create(&options, &state));
  check(accel_prepare_model(state, module.get(), nullptr, &model));
  check(accel_optimizer_sgd(model, &sgd, &plain));
  check(accel_prepare_optimizer(state, plain, &optimizer));
  for (int step = 0; step < kSteps; step++) {
    const at::Tensor loss = torch::nn::functional::cross_entropy(call(model, {input}), labels);
    check(accel_backward(state, accel::tensor_from_torch(loss).get(), nullptr));
    check(accel_optimizer_step(optimizer));
    check(accel_optimizer_zero_grad(optimizer, 1));
    losses.push_back(loss.item<double>());
  }
  check(accel_end_training(state));
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(model);
  accel_state_release(state);
  return losses;
}

TEST_F(Bridge, OneProcessTrainsBitForBitAsLibTorchAlone) {
  Net net = new_net(), expected = new_net();
  const std::vector<double> losses = train(net, 0, 1, free_port(), some_input(12), some_labels(12));

  torch::optim::SGD optimizer(expected->parameters(), torch::optim::SGDOptions(kLearningRate));
  for (int step = 0; step < kSteps; step++) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(expected->forward(some_input(12)), some_labels(12));
    EXPECT_EQ(losses[step], loss.item<double>()) << "step " << step;
    loss.backward();
    optimizer.step();
  }
  EXPECT_LT(losses.back(), losses.front() / 2);
  const auto parameters = net->named_parameters();
  for (const auto& parameter : expected->named_parameters())
    EXPECT_TRUE(at::equal(parameters[parameter.key()], parameter.value())) << parameter.key();
}

TEST_F(Bridge, TwoRanksAverageTheirGradients) {
  const std::vector<Net> nets = {new_net(), new_net()};
  std::vector<std::vector<double>> losses(2);
  std::vector<std::thread> ranks;
  const int32_t port = free_port();
  const at::Tensor input = some_input(12), labels = some_labels(12);
  for (int32_t rank = 0; rank < 2; rank++)
    ranks.emplace_back([&, rank] {
      const auto mine = [rank](const at::Tensor& whole) { return whole.chunk(2)[rank]; };
      losses[rank] = train(nets[rank], rank, 2, port, mine(input), mine(labels));
    });
  for (std::thread& rank : ranks) rank.join();

  EXPECT_NE(losses[0], losses[1]);  // each had its own rows
  for (const std::vector<double>& each : losses) EXPECT_LT(each.back(), each.front());
  const auto first = nets[0]->named_parameters();
  for (const auto& parameter : nets[1]->named_parameters())
    EXPECT_TRUE(at::equal(first[parameter.key()], parameter.value())) << parameter.key();
}

}  // namespace
