// SPDX-License-Identifier: Apache-2.0
// Workload pipeline_boundary: what passes between the stages of a pipeline. Microseconds that it takes a stage to send
// a boundary, and microseconds an action of a step whose stages compute nothing. bench/run starts the ranks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <accel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "capi/calls/handles.hpp"
#include "comm/communicator.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"
#include "parallel/pipeline/stage_runner.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

namespace {

namespace comm = accel::comm;
namespace parallel = accel::parallel;
using GroupPtr = std::shared_ptr<comm::Communicator>;

constexpr size_t kWarmup = 5;
constexpr int kTag = 1;

// A stage that computes nothing: its output is its input, and the gradient of that, memory that nobody has written.
struct Nothing : torch::autograd::Function<Nothing> {
  static at::Tensor forward(torch::autograd::AutogradContext *context, const at::Tensor &input, bool is_loss) {
    context->saved_data["sizes"] = input.sizes();
    return is_loss ? at::zeros({}) : input.view_as(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 const torch::autograd::variable_list &) {
    return {at::empty(context->saved_data["sizes"].toIntVector()), {}};
  }
};

double percentile(std::vector<double> sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

// Rank 0 sends to rank 1, which waits for it in a receive that is posted before.
void measure_send(accel_state_t *state, const GroupPtr &ranks, int64_t bytes, size_t samples) {
  const at::Tensor boundary = at::ones({bytes}, at::kByte);
  std::vector<double> sent, arrived;
  for (size_t i = 0; i < kWarmup + samples; i++) {
    std::shared_ptr<comm::Work> work;
    if (ranks->rank() == 1) work = ranks->start(comm::Collective::receive(boundary, 0, kTag));
    ranks->barrier();
    const double begun = measure_now();
    if (ranks->rank() == 0) work = ranks->start(comm::Collective::send(boundary, 1, kTag), comm::RunsOn::kCaller);
    const double posted = measure_now();
    if (work != nullptr) {
      work->synchronize();
      work->result();
    }
    if (i < kWarmup) continue;
    sent.push_back((posted - begun) * 1e6);
    arrived.push_back((measure_now() - begun) * 1e6);
  }
  const double median_arrived = measure_median(arrived.data(), arrived.size());
  char params[120], extra[120];
  std::snprintf(params, sizeof params, "{\"what\": \"send\", \"bytes\": %lld, \"procs\": %d}",
                static_cast<long long>(bytes), ranks->size());
  std::snprintf(extra, sizeof extra, "\"until_taken_us\": %.5g", median_arrived);
  const figure line = {"pipeline_boundary", params, "us", 0, sent.data(), sent.size(), 0, extra};
  measure_report(state, &line);
}

void measure_step(accel_state_t *state, const GroupPtr &ranks, int64_t bytes, int micro_batches, size_t steps) {
  parallel::StageRunner runner(parallel::one_forward_one_backward_schedule(ranks->size(), micro_batches), ranks,
                               at::kCPU);
  const at::Tensor input = at::ones({bytes / 4});
  parallel::PipelineComputation nothing;
  nothing.input = [&](int) { return c10::IValue(input.detach().requires_grad_()); };
  nothing.forward = [](int, int, const c10::IValue &value) { return Nothing::apply(value.toTensor(), false); };
  nothing.loss = [](int, const c10::IValue &value) { return Nothing::apply(value.toTensor(), true); };
  nothing.weight = [](int) { return 1.0; };
  std::vector<double> samples;
  for (size_t step = 0; step < kWarmup + steps; step++) {
    const double begun = measure_now();
    runner.run(nothing);
    const auto actions = static_cast<double>(runner.schedule().ranks[static_cast<size_t>(ranks->rank())].size());
    if (step >= kWarmup) samples.push_back((measure_now() - begun) * 1e6 / actions);
  }
  char params[160], extra[80];
  std::snprintf(params, sizeof params, "{\"what\": \"action\", \"bytes\": %lld, \"micro_batches\": %d, \"procs\": %d}",
                static_cast<long long>(bytes), micro_batches, ranks->size());
  std::snprintf(extra, sizeof extra, "\"p90_us\": %.5g", percentile(samples, 0.9));
  const figure line = {"pipeline_boundary", params, "us", 0, samples.data(), samples.size(), 0, extra};
  measure_report(state, &line);
}

}  // namespace

int main(int argc, char **argv) {
  enum { MICRO_BATCHES, SAMPLES, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--micro-batches", "64"}, {"--samples", "100"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const auto micro_batches = static_cast<int>(measure_integer(&options[MICRO_BATCHES]));
  const auto samples = static_cast<size_t>(measure_integer(&options[SAMPLES]));

  const accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *const state = measure_state(state_options, "cpu");
  const GroupPtr ranks = accel::capi::accelerator_of(state)->state().communicator();
  if (ranks->size() < 2) {
    std::fprintf(stderr, "a pipeline has two ranks or more\n");
    return 2;
  }
  for (const int64_t bytes : {256 << 10, 1 << 20, 4 << 20}) measure_send(state, ranks, bytes, samples);
  for (const int64_t bytes : {4, 256 << 10}) measure_step(state, ranks, bytes, micro_batches, samples / 4 + 1);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
