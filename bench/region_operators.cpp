// SPDX-License-Identifier: Apache-2.0
// Workload region_operators: microseconds that a parallel operator of a split region costs beside its collective,
// forward and backward, on tensors of a few numbers. bench/run starts the ranks; one has no collectives.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <accel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "capi/calls/handles.hpp"
#include "comm/communicator.hpp"
#include "parallel/regions/parallel_operators.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

namespace {

namespace comm = accel::comm;
namespace parallel = accel::parallel;
using parallel::RankGroup;

constexpr size_t kWarmup = 200;
constexpr int64_t kNumbers = 16;

struct Operator {
  const char *name;
  std::function<at::Tensor(const at::Tensor &)> apply;
  std::function<void()> collective;  // of forward and backward together
};

// Microseconds a call, of calls one after the other.
double microseconds_of(const std::function<void()> &call, size_t calls) {
  const double begun = measure_now();
  for (size_t i = 0; i < calls; i++) call();
  return (measure_now() - begun) * 1e6 / static_cast<double>(calls);
}

void measure_operator(accel_state_t *state, const RankGroup &group, const Operator &one, size_t samples) {
  constexpr size_t kCalls = 100;
  const at::Tensor input = at::ones({kNumbers}).requires_grad_(), gradient = at::ones({1}).expand({kNumbers});
  const auto call = [&] {
    const at::Tensor out = one.apply(input);
    if (out.is_same(input)) return;
    torch::autograd::grad({out}, {input}, {gradient.narrow(0, 0, 1).expand(out.sizes())});
  };
  // The same graph without an operator of ours.
  const auto without = [&] {
    torch::autograd::grad({input.view({kNumbers})}, {input}, {gradient});
    one.collective();
  };
  microseconds_of(call, kWarmup);
  microseconds_of(without, kWarmup);
  std::vector<double> beside;
  double whole = 0;
  for (size_t i = 0; i < samples; i++) {
    const double with = microseconds_of(call, kCalls);
    // On a busy machine the collective alone may take longer than with the operator: the operator then costs nothing.
    beside.push_back(group->size() == 1 ? with : std::max(0.0, with - microseconds_of(without, kCalls)));
    whole += with / static_cast<double>(samples);
  }
  char params[120], extra[80];
  std::snprintf(params, sizeof params, "{\"operator\": \"%s\", \"procs\": %d}", one.name, group->size());
  std::snprintf(extra, sizeof extra, "\"whole_us\": %.5g", whole);
  const figure line = {"region_operators", params, "us", 0, beside.data(), beside.size(), 0, extra};
  measure_report(state, &line);
}

}  // namespace

int main(int argc, char **argv) {
  enum { SAMPLES, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--samples", "50"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const auto samples = static_cast<size_t>(measure_integer(&options[SAMPLES]));

  const accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *const state = measure_state(state_options, "cpu");
  const RankGroup group = accel::capi::accelerator_of(state)->state().communicator();
  const int64_t ranks = group->size();
  const at::Tensor small = at::ones({kNumbers}), large = at::ones({ranks * kNumbers});
  const auto sum = [&] { group->all_reduce(small, comm::ReduceOp::kMax); };
  const auto gather = [&] { group->all_gather(small, large); };
  const auto scatter = [&] { group->run(comm::Collective::reduce_scatter(large, comm::ReduceOp::kMax, small)); };
  const auto both = [&] {
    gather();
    scatter();
  };
  const std::vector<Operator> operators = {
      {"copy", [&](const at::Tensor &input) { return parallel::parallel_copy(input, group); }, sum},
      {"reduce", [&](const at::Tensor &input) { return parallel::parallel_reduce(input, group); }, sum},
      {"gather",
       [&](const at::Tensor &input) {
         return parallel::parallel_gather(input, 0, parallel::GatheredGradient::kPartial, group);
       },
       both},
      {"scatter", [&](const at::Tensor &input) { return parallel::parallel_scatter(input, 0, group); }, gather},
  };
  for (const Operator &one : operators) measure_operator(state, group, one, samples);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
