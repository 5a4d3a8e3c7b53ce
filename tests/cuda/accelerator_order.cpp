// SPDX-License-Identifier: Apache-2.0
// Does what its arguments say, in this order, and prints what LibTorch thinks of CUDA then:
// accelerator_order [STEP...] [/ STEP...]...
//
// Last lines: "hooks: real" or "hooks: none", "library: loaded" or "library: not loaded", "devices: N" and why there
// are none. A step `describe` prints the state's settings. Orders between slashes are tried in a process each, and the
// line before what it prints is "order: STEP...".
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <accel.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

using Steps = std::vector<std::string>;

void check(accel_status_t status) {
  if (status == ACCEL_OK) return;
  std::cerr << "error " << status << ": " << accel_last_error() << "\n";
  std::exit(3);
}

accel_state_t* new_state(bool on_host, bool alone) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  if (on_host) options.cpu = 1;
  if (alone) options.process_index = 0, options.num_processes = 1;
  accel_state_t* state = nullptr;
  check(accel_state_create(&options, &state));
  return state;
}

// As Python's accel.set_seed() does before there is a state.
void seed() {
  accel_state_t* const state = new_state(/*on_host=*/true, /*alone=*/true);
  check(accel_set_seed(state, 7, 0, 0));
  accel_state_release(state);
}

void draw() {
  accel_generator_t* generator = nullptr;
  const accel_device_t host = {ACCEL_DEVICE_CPU, -1};
  check(accel_generator_create(7, &host, &generator));
  accel_generator_release(generator);
}

void describe(const accel_state_t* state) {
  accel_buffer_t text{};
  check(accel_state_describe(state, &text));
  std::cout << static_cast<const char*>(text.data) << "\n";
  accel_buffer_dispose(&text);
}

bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}

void run(const std::string& step, accel_state_t*& state) {
  if (step == "seed") {
    seed();
  } else if (step == "generator") {
    draw();
  } else if (step == "conv") {  // LibTorch asks whether it has cuDNN
    at::conv2d(at::ones({1, 1, 4, 4}), at::ones({1, 1, 2, 2}));
  } else if (step == "backward") {
    torch::autograd::backward({at::ones({2}).requires_grad_().sum()}, {});
  } else if (step == "pin") {
    try {
      at::empty({2}, at::TensorOptions().pinned_memory(true));
    } catch (const std::exception&) {  // there is no driver that could
    }
  } else if (step == "state" || step == "host_state") {
    state = new_state(step == "host_state", /*alone=*/false);
  } else if (step == "release") {
    accel_state_release(state);
    state = nullptr;
  } else if (step == "describe") {
    describe(state);
  } else {
    std::cerr << step << ": no such step\n";
    std::exit(2);
  }
}

int try_order(const Steps& steps) {
  accel_state_t* state = nullptr;
  static_cast<void>(accel_device_count(ACCEL_DEVICE_CPU));  // the program's first call
  for (const std::string& step : steps) run(step, state);
  std::cout << "library: " << (is_mapped("libtorch_cuda.so") ? "loaded" : "not loaded") << "\n";
  const int32_t devices = accel_device_count(ACCEL_DEVICE_CUDA);
  accel_buffer_t reason{};
  check(accel_unavailable_reason("cuda", &reason));
  std::cout << "devices: " << devices << " " << static_cast<const char*>(reason.data) << "\n";
  accel_buffer_dispose(&reason);
  if (state != nullptr) std::cout << "state: type " << accel_device(state)->type << "\n";
  std::cout << "hooks: " << (at::detail::getCUDAHooks().isBuilt() ? "real" : "none") << "\n";
  accel_state_release(state);
  return 0;
}

// In a copy of this process, which has called nothing yet.
bool try_apart(const Steps& steps) {
  std::cout << "order:";
  for (const std::string& step : steps) std::cout << " " << step;
  std::cout << std::endl;
  const pid_t child = fork();
  if (child == 0) std::exit(try_order(steps));
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Steps> orders(1);
  for (int i = 1; i < count; i++) {
    const std::string word = arguments[i];
    if (word == "/")
      orders.emplace_back();
    else
      orders.back().push_back(word);
  }
  if (orders.size() == 1) return try_order(orders[0]);
  for (const Steps& steps : orders)
    if (!try_apart(steps)) return 1;
  return 0;
}
