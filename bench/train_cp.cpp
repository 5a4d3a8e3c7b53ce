// SPDX-License-Identifier: Apache-2.0
// Workload train_cp: milliseconds a step of a GPT of which each rank computes its positions of the sequences. One
// process of the ranks; bench/run starts them.
#include <ATen/core/Tensor.h>
#include <accel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "capi/calls/handles.hpp"
#include "json/json.hpp"
#include "parallel/context/context_scope.hpp"
#include "trace/span.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"
#include "workloads.h"

namespace {

namespace parallel = accel::parallel;
using ContextMethod = decltype(parallel::ContextParallelism::method);

constexpr size_t kWarmup = 2;
constexpr double kMebi = 1 << 20;

struct Method {
  const char *name;
  std::optional<ContextMethod> method;  // nothing: sequences are whole
};
constexpr Method kMethods[] = {{"ring", ContextMethod::kRing},
                               {"allgather", ContextMethod::kAllGather},
                               {"ulysses", ContextMethod::kUlysses},
                               {"none", std::nullopt}};

const Method &find_method(const char *name) {
  for (const Method &method : kMethods)
    if (std::strcmp(method.name, name) == 0) return method;
  std::fprintf(stderr, "--method %s: expected ring, allgather, ulysses or none\n", name);
  std::exit(2);
}

accel_state_t *make_state(const Method &method) {
  const char *const ranks = std::getenv("WORLD_SIZE");
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.context_parallel_size = method.method && ranks != nullptr ? std::atoi(ranks) : 1;
  accel_state_t *const state = measure_state(options, "cpu");
  if (!method.method && accel_num_processes(state) > 1) {
    std::fprintf(stderr, "the method none is for one process\n");
    std::exit(2);
  }
  return state;
}

// A row of tokens a step, and its labels.
struct Rows {
  Rows(size_t count, int64_t length) : length(length) {
    const int64_t shape[] = {static_cast<int64_t>(count), length + 1};
    CHECK(accel_tensor_randint(0, kGpt.vocabulary, shape, 2, &tokens));
  }
  ~Rows() { accel_tensor_release(tokens); }
  Rows(const Rows &) = delete;
  Rows &operator=(const Rows &) = delete;

  at::Tensor part(size_t row, int64_t begin) const {
    return tokens->tensor.narrow(0, static_cast<int64_t>(row), 1).narrow(1, begin, length).contiguous();
  }

  accel_tensor_t *tokens = nullptr;
  int64_t length;
};

struct Training {
  accel_state_t *state;
  std::optional<parallel::ContextParallelism> split;
  const Rows &rows;
  accel_module_t *model = nullptr;
  accel_optimizer_t *optimizer = nullptr;

  void prepare(accel_module_t *plain) {
    accel_optimizer_t *adamw = nullptr;
    accel_adam_options_t adam_options = ACCEL_ADAM_OPTIONS_INIT;
    adam_options.lr = 3e-4;
    accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
    options.split_by_program = split.has_value();
    CHECK(accel_optimizer_adamw(plain, &adam_options, &adamw));
    CHECK(accel_prepare_model(state, plain, &options, &model));
    CHECK(accel_prepare_optimizer(state, adamw, &optimizer));
    accel_optimizer_release(adamw);
    accel_module_release(plain);
  }

  // Returns the loss.
  double step(size_t row) const {
    accel_tensor_t inputs(rows.part(row, 0)), labels(rows.part(row, 1));
    accel_tensor_t *loss = nullptr;
    accel_value_t logits = ACCEL_VALUE_INIT;
    {
      std::optional<parallel::ContextScope> scope;
      if (split) scope.emplace(*split, std::vector<parallel::SplitBuffer>{{inputs.tensor, 1}, {labels.tensor, 1}});
      const accel_value_t argument = accel_arg_tensor(&inputs);
      CHECK(accel_module_call(model, &argument, 1, &logits));
      CHECK(accel_cross_entropy(logits.as.tensor, &labels, &loss));
    }
    CHECK(accel_backward(state, loss, nullptr));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    double number = 0;
    CHECK(accel_tensor_item(loss, &number));
    accel_tensor_release(loss);
    accel_value_dispose(&logits);
    return number;
  }
};

// What this rank has received since then, in bytes: the ranks of both groups are all of the job.
double received_bytes(const accel::comm::Communicator &group, int64_t since_us) {
  const double ranks = group.size(), others = ranks - 1;
  double received = 0;
  const accel::Json record = accel::parse_json(group.flight_record()->to_json(), "the flight record");
  for (const accel::Json &operation : *accel::json_member(record, "operations")->items()) {
    if (accel::json_integer(operation, "begun_us", 0) < since_us) continue;
    const std::string name = accel::json_text(operation, "operation", "");
    const auto bytes = static_cast<double>(accel::json_integer(operation, "bytes", 0));
    if (name == "all_gather")
      received += bytes * others;
    else if (name == "all_reduce")
      received += 2 * bytes * others / ranks;
    else if (name == "reduce_scatter" || name == "all_to_all")
      received += bytes * others / ranks;
    else if (name == "recv")
      received += bytes;
  }
  return received;
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Messages {
  double seconds = 0, waited = 0;  // under way; and of that, until the computation could go on
};

// On one host blocks are gathered in place, and their gradients reduced there.
Messages messages_of(const accel::Spans::Recording &recording) {
  Messages messages;
  for (const auto &[span, thread] : recording.spans) {
    const double seconds = static_cast<double>(recording.to_unix(span.ended) - recording.to_unix(span.begun)) * 1e-9;
    const std::string name = span.name != nullptr ? span.name : span.own_name;
    if (span.kind == accel::SpanKind::kCollective &&
        (name == "recv" || name == "all_gather" || name == "reduce_scatter"))
      messages.seconds += seconds;
    if (span.kind == accel::SpanKind::kWait && name == "wait for block") messages.waited += seconds;
  }
  return messages;
}

// The sums over all ranks.
std::vector<double> summed(accel_state_t *state, std::vector<double> numbers) {
  const int64_t shape[] = {static_cast<int64_t>(numbers.size())};
  accel_tensor_t *tensor = nullptr;
  void *data = nullptr;
  CHECK(accel_tensor_from_data(numbers.data(), shape, 1, ACCEL_DTYPE_FLOAT64, &tensor));
  CHECK(accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM));
  CHECK(accel_tensor_data(tensor, &data));
  std::memcpy(numbers.data(), data, numbers.size() * sizeof(double));
  accel_tensor_release(tensor);
  return numbers;
}

}  // namespace

int main(int argc, char **argv) {
  enum { METHOD, LENGTH, STEPS, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--method", "ring"}, {"--length", "2048"}, {"--steps", "10"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int64_t length = measure_integer(&options[LENGTH]);
  const auto steps = static_cast<size_t>(measure_integer(&options[STEPS]));
  const Method &method = find_method(options[METHOD].value);

  accel_state_t *const state = make_state(method);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));
  gpt model = kGpt;
  model.context = length;
  accel_module_t *const plain = workload_make_gpt(&model, ACCEL_RECOMPUTE_NOTHING);
  const Rows rows(kWarmup + steps + 1, length);
  const auto group = accel::capi::accelerator_of(state)->state().groups().mesh()->group("context");
  std::optional<parallel::ContextParallelism> split;
  if (method.method && group->size() > 1)
    split = {group, *method.method,
             *method.method == ContextMethod::kUlysses ? parallel::SequenceOrder::kContiguous
                                                       : parallel::SequenceOrder::kHeadAndTail,
             std::make_shared<parallel::ExchangeMemory>(group)};
  Training training{state, split, rows};
  training.prepare(plain);

  std::vector<double> samples(steps);
  double loss = 0, processor = 0;
  int64_t last_step_us = 0;
  for (size_t row = 0; row < kWarmup + steps; row++) {
    if (row == kWarmup) {
      CHECK(accel_wait_for_everyone(state));
      processor = measure_processor();
    }
    last_step_us = now_us();
    const double begun = measure_now();
    loss = training.step(row);
    if (row >= kWarmup) samples[row - kWarmup] = measure_now() - begun;
  }
  processor = measure_processor() - processor;
  const double received = received_bytes(*group, last_step_us);
  accel::Spans::begin(false);
  training.step(kWarmup + steps);
  const Messages messages = messages_of(accel::Spans::end());
  const auto sums =
      summed(state, {processor / static_cast<double>(steps), received, messages.seconds, messages.waited});

  for (double &sample : samples) sample *= 1e3;
  const double median_ms = measure_median(samples.data(), steps);
  char params[160], extra[320], hidden[80] = "";
  std::snprintf(params, sizeof params, "{\"method\": \"%s\", \"length\": %lld, \"batch\": 1, \"procs\": %d}",
                split ? method.name : "none", static_cast<long long>(length), accel_num_processes(state));
  if (split && *method.method == ContextMethod::kRing)
    std::snprintf(hidden, sizeof hidden, ", \"messages_ms\": %.5g, \"hidden_percent\": %.4g", sums[2] * 1e3,
                  (1 - sums[3] / sums[2]) * 100);
  std::snprintf(extra, sizeof extra,
                "\"tokens_per_s\": %.5g, \"loss\": %.5g, \"received_mb_per_step\": %.5g, \"processor_ms_per_step\": "
                "%.5g%s",
                static_cast<double>(length) / median_ms * 1e3, loss, sums[1] / kMebi, sums[0] * 1e3, hidden);
  const figure line = {"train_cp", params, "ms", 0, samples.data(), steps, base_rss_mb, extra};
  measure_report(state, &line);

  CHECK(accel_end_training(state));
  accel_optimizer_release(training.optimizer);
  accel_module_release(training.model);
  accel_state_release(state);
  return 0;
}
