// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/self_test_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include <accel.hpp>
#include "json/json.hpp"

namespace accel::program {
namespace {

constexpr std::int64_t kFeatures = 8, kClasses = 4, kRows = 16;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

std::vector<std::int64_t> integers(const cpp::Value& value) {
  const cpp::Value local = cpp::send_to_device(value, {ACCEL_DEVICE_CPU, -1}, false, {});
  const cpp::Tensor tensor = local.tensor();
  const auto* const data = static_cast<const std::int64_t*>(tensor.data());
  return {data, data + tensor.numel()};
}

cpp::Tensor whole_number(const cpp::State& state, std::int64_t number) {
  return cpp::Tensor::full({1}, static_cast<double>(number), ACCEL_DTYPE_INT64, state.device());
}

std::string test_collectives(cpp::State& state) {
  const std::int64_t ranks = state.num_processes(), rank = state.process_index();
  const cpp::Tensor sum = whole_number(state, rank + 1);
  state.all_reduce(sum, ACCEL_REDUCE_SUM);
  expect(integers(sum).front() == ranks * (ranks + 1) / 2, "the sum over the ranks is wrong");
  const std::vector<std::int64_t> gathered = integers(state.gather(whole_number(state, rank * 3)));
  expect(static_cast<std::int64_t>(gathered.size()) == ranks, "not every rank was gathered");
  for (std::int64_t i = 0; i < ranks; ++i)
    expect(gathered[static_cast<std::size_t>(i)] == i * 3, "ranks were gathered in another order");
  const cpp::Tensor last = whole_number(state, rank);
  state.broadcast(last, static_cast<std::int32_t>(ranks - 1));
  expect(integers(last).front() == ranks - 1, "what the last rank had did not come to all");
  state.wait_for_everyone();
  return "sum, gather, broadcast, barrier";
}

// One epoch of the numbers below `samples`, as all ranks together saw it.
std::vector<std::int64_t> epoch(cpp::State& state, std::int64_t samples, bool shuffle) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) numbers[static_cast<std::size_t>(i)] = i;
  cpp::DataloaderOptions options;
  options.batch_size = 4;
  options.shuffle = shuffle ? 1 : 0;
  cpp::Dataloader loader = state.prepare_data_loader(cpp::Dataloader::create(
      cpp::Dataset::tensors({cpp::Tensor::from_data(numbers.data(), {samples}, ACCEL_DTYPE_INT64)}), options));
  std::vector<std::int64_t> seen;
  while (const std::optional<cpp::Value> batch = loader.next()) {
    const std::vector<std::int64_t> all = integers(state.gather_for_metrics(batch->at(0)));
    seen.insert(seen.end(), all.begin(), all.end());
  }
  return seen;
}

std::string test_loaders(cpp::State& state) {
  const std::int64_t samples = 8 * state.num_processes() + 3;  // the last batch is short
  const std::vector<std::int64_t> in_order = epoch(state, samples, false);
  expect(static_cast<std::int64_t>(in_order.size()) == samples, "samples were lost or came twice");
  for (std::size_t i = 0; i < in_order.size(); ++i)
    expect(in_order[i] == static_cast<std::int64_t>(i), "samples came in another order");
  std::vector<std::int64_t> shuffled = epoch(state, samples, true);
  expect(shuffled != in_order, "shuffled samples came in order");
  std::sort(shuffled.begin(), shuffled.end());
  expect(shuffled == in_order, "shuffled samples are not those of the data");
  return std::to_string(samples) + " samples in shares, in order and shuffled";
}

struct Training {
  cpp::Module model;
  cpp::Optimizer optimizer;
};

Training make_training(cpp::State& state) {
  state.set_seed(5, false, false);
  const cpp::Module model =
      cpp::Module::sequential({cpp::Module::linear(kFeatures, 16, true), cpp::Module::activation("relu"),
                               cpp::Module::linear(16, kClasses, true)});
  cpp::AdamOptions adam;
  adam.lr = 0.02;
  cpp::Module prepared = state.prepare_model(model);
  return {std::move(prepared), state.prepare_optimizer(cpp::Optimizer::adamw(model, adam))};
}

// The loss before each of the steps, of data that differs by rank.
std::vector<double> train(cpp::State& state, Training& training, int steps) {
  std::vector<float> features;
  std::vector<std::int64_t> labels;
  for (std::int64_t row = 0; row < kRows; ++row) {
    labels.push_back((row + state.process_index()) % kClasses);
    for (std::int64_t i = 0; i < kFeatures; ++i)
      features.push_back(i % kClasses == labels.back() ? 1.0F : 0.01F * static_cast<float>(row - i));
  }
  const cpp::Value inputs = cpp::send_to_device(
      cpp::Tensor::from_data(features.data(), {kRows, kFeatures}, ACCEL_DTYPE_FLOAT32), state.device(), false, {});
  const cpp::Value targets =
      cpp::send_to_device(cpp::Tensor::from_data(labels.data(), {kRows}, ACCEL_DTYPE_INT64), state.device(), false, {});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    cpp::Tensor loss = cpp::cross_entropy(training.model.call({inputs}).tensor(), targets.tensor());
    losses.push_back(loss.item());
    state.backward(loss);
    training.optimizer.step();
    training.optimizer.zero_grad();
  }
  return losses;
}

// `others`: the losses of the same training in float32; empty: this is it.
std::string test_training(cpp::State& state, std::vector<double>& others) {
  Training training = make_training(state);
  const std::vector<double> losses = train(state, training, 20);
  if (others.empty()) {
    others = losses;
  } else {
    // Rounded to 8 bits, the same training takes another way, but not far away.
    expect(losses != others, "the losses are those of float32: nothing was computed in lower precision");
    expect(std::abs(losses.front() - others.front()) < 0.05, "the first loss is far from that of float32");
  }
  expect(std::isfinite(losses.back()) && losses.back() < 0.7 * losses.front(), "the loss does not fall");
  // Gradients are averaged: the ranks still have one model.
  const cpp::Tensor first = training.model.named_parameters().at(0).tensor();
  const cpp::Value all = cpp::send_to_device(state.gather(first), {ACCEL_DEVICE_CPU, -1}, false, {});
  const auto* const data = static_cast<const float*>(all.tensor().data());
  const std::int64_t count = first.numel();
  for (std::int64_t i = 0; i < all.tensor().numel(); ++i)
    expect(data[i] == data[i % count], "the ranks have different weights after training");
  state.free_memory();
  char shown[64];
  std::snprintf(shown, sizeof shown, "loss %.4f to %.4f, equal weights", losses.front(), losses.back());
  return shown;
}

std::string test_checkpoint(cpp::State& state, const std::string& folder) {
  Training training = make_training(state);
  train(state, training, 3);
  state.save_state(folder.c_str());
  const std::vector<double> went_on = train(state, training, 3);
  state.load_state(folder.c_str());
  expect(train(state, training, 3) == went_on, "training from the checkpoint differs from training without");
  const cpp::Value report = cpp::checkpoint_verify(folder);
  expect(report.at("problems").items().empty(), "the checkpoint has damaged files");
  state.free_memory();
  return std::to_string(report.at("files").integer()) + " files, loaded with equal losses";
}

class SelfTest {
 public:
  explicit SelfTest(bool is_json) : is_json_(is_json) {}

  template <typename Check>
  void run(const char* name, bool says, Check&& check) {
    const auto begin = std::chrono::steady_clock::now();
    std::string detail, problem;
    try {
      detail = check();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (says || !problem.empty()) say(name, seconds, problem.empty() ? detail : problem, problem.empty());
    if (!problem.empty()) throw std::runtime_error(std::string(name) + ": " + problem);
  }

 private:
  void say(const char* name, double seconds, const std::string& detail, bool works) const {
    if (is_json_)
      std::printf("%s\n", print_json(Json(Json::Members{{"part", Json(name)},
                                                        {"works", Json(works)},
                                                        {"seconds", Json::number(seconds)},
                                                        {"detail", Json(detail)}}))
                              .c_str());
    else
      std::printf("%-14s %-6s %7.3f s  %s\n", name, works ? "works" : "FAILS", seconds, detail.c_str());
    std::fflush(stdout);
  }

  const bool is_json_;
};

}  // namespace

int run_self_test(const std::vector<std::string>& arguments) {
  expect(arguments.size() == 3, "the self-test was given " + std::to_string(arguments.size()) +
                                    " arguments; expected FOLDER SECONDS text|json, which accel test gives");
  ::alarm(static_cast<unsigned>(std::stoul(arguments[1])));  // no part may wait for ever
  SelfTest test(arguments[2] == "json");
  std::vector<double> losses;
  bool says = true;
  for (const accel_precision_t precision : {ACCEL_PRECISION_NO, ACCEL_PRECISION_BF16}) {
    std::optional<cpp::State> state;
    const bool is_first = precision == ACCEL_PRECISION_NO;
    test.run(is_first ? "start" : "start again", false, [&] {
      cpp::StateOptions options;
      options.mixed_precision = precision;
      state = cpp::State::create(options);
      return std::string();
    });
    says = state->is_main_process();
    if (!is_first) {
      test.run("bf16", says, [&] { return test_training(*state, losses); });
      continue;
    }
    test.run("start", says, [&] {
      return std::to_string(state->num_processes()) + " processes, " + cpp::device_type_name(state->device().type);
    });
    test.run("collectives", says, [&] { return test_collectives(*state); });
    test.run("loaders", says, [&] { return test_loaders(*state); });
    test.run("training", says, [&] { return test_training(*state, losses); });
    test.run("checkpoint", says, [&] { return test_checkpoint(*state, arguments[0] + "/checkpoint"); });
    state->end_training();
  }
  return 0;
}

}  // namespace accel::program
