// SPDX-License-Identifier: Apache-2.0
// Workload fp8: casts between 8-bit floating point and float32 or bfloat16, against a copy in memory, and a linear
// layer, forward and backward, by accel::fp8_linear, under autocast to bfloat16, in float32, and its forward alone,
// with the casts, and by LibTorch's _scaled_mm without them.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <accel.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "capi/calls/handles.hpp"
#include "config/generated/choices/precision.hpp"
#include "kernels/fp8/fp8_cast_kernels.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/update/elementwise.hpp"
#include "nn/low_precision/fp8_linear.hpp"
#include "precision/autocast.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

namespace accel::kernels {
namespace {

struct InstructionSetOfCasts {
  const char *name;
  Fp8CastKernels kernels;
};

std::vector<InstructionSetOfCasts> instruction_sets() {
  std::vector<InstructionSetOfCasts> sets = {{"portable", baseline::fp8_cast_kernels()}};
#ifdef __x86_64__
  if (fastest_instruction_set() >= InstructionSet::kAvx2) sets.push_back({"avx2", avx2::fp8_cast_kernels()});
  if (fastest_instruction_set() >= InstructionSet::kAvx512) sets.push_back({"avx512", avx512::fp8_cast_kernels()});
#endif
  return sets;
}

}  // namespace
}  // namespace accel::kernels

namespace {

using accel::kernels::Float8Format;

constexpr int64_t kNumbers = int64_t{1} << 24;
constexpr float kHalf = 0.5F, kTwo = 2.0F;

// Milliseconds of each repetition, the first one left out.
std::vector<double> time_of(int64_t repetitions, const std::function<void()> &work) {
  std::vector<double> samples;
  for (int64_t i = 0; i <= repetitions; i++) {
    const double start = measure_now();
    work();
    if (i > 0) samples.push_back((measure_now() - start) * 1e3);
  }
  return samples;
}

void report(accel_state_t *state, const char *bench, const std::string &params, std::vector<double> samples,
            const std::string &extra) {
  const figure line = {bench,          params.c_str(), "ms", 0,
                       samples.data(), samples.size(), 0,    extra.empty() ? nullptr : extra.c_str()};
  measure_report(state, &line);
}

// The bytes a second that a copy of 67 MB moves, in GB.
double copied_by_second(int64_t repetitions) {
  const at::Tensor source = at::ones({4 * kNumbers}, at::kByte), target = at::ones({4 * kNumbers}, at::kByte);
  std::vector<double> copies = time_of(repetitions, [&] { target.copy_(source); });
  return 8e-6 * kNumbers / measure_median(copies.data(), copies.size());
}

// On one thread, each way once, as many bytes a second as a copy moves.
void measure_casts(accel_state_t *state, const accel::kernels::InstructionSetOfCasts &set, double copied,
                   int64_t repetitions) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor numbers = at::randn({kNumbers}).to(dtype);
    at::Tensor small = accel::kernels::quantize_with(numbers, at::kFloat8_e4m3fn, 1).values;
    auto *const bytes = static_cast<uint8_t *>(small.mutable_data_ptr());
    const accel::kernels::ElementSpan span = accel::kernels::span_of(numbers);
    for (const bool back : {false, true}) {
      std::vector<double> samples = time_of(repetitions, [&] {
        if (back)
          set.kernels.dequantize(bytes, Float8Format::kE4M3, &kHalf, kNumbers, span, 0, kNumbers);
        else
          set.kernels.quantize(span, 0, kNumbers, &kTwo, kNumbers, Float8Format::kE4M3, bytes);
      });
      const double moved = 1e-6 * static_cast<double>(kNumbers * (numbers.element_size() + 1)) /
                           measure_median(samples.data(), samples.size());
      char params[120], extra[120];
      std::snprintf(params, sizeof params,
                    "{\"dtype\": \"%s\", \"to\": \"%s\", \"instructions\": \"%s\", \"numbers\": %lld}",
                    dtype == at::kFloat ? "float32" : "bfloat16", back ? "number" : "e4m3", set.name,
                    static_cast<long long>(kNumbers));
      std::snprintf(extra, sizeof extra, "\"gb_per_s\": %.3g, \"of_copy\": %.3g", moved, moved / copied);
      report(state, "fp8_cast", params, samples, extra);
    }
  }
}

void measure_linear(accel_state_t *state, const std::string &variant, int64_t rows, int64_t inputs, int64_t outputs,
                    int64_t repetitions) {
  const auto dtype = variant != "float32" && variant != "scaled_mm" ? at::kBFloat16 : at::kFloat;
  const at::Tensor input = at::randn({rows, inputs}).to(dtype).requires_grad_();
  const at::Tensor weight = at::randn({outputs, inputs}).requires_grad_();
  const at::Tensor gradient = at::randn({rows, outputs}).to(dtype);
  std::function<void()> work = [&] {
    const accel::precision::AutocastGuard autocast(
        variant == "float32" ? accel::Precision::kNo : accel::Precision::kBf16, c10::DeviceType::CPU);
    const at::Tensor output =
        variant == "fp8" ? accel::nn::fp8_linear(input, weight, {}, "HYBRID") : at::linear(input, weight);
    output.backward(gradient);
    input.mutable_grad() = weight.mutable_grad() = at::Tensor();
  };
  const at::Tensor one = at::ones({1}), small = input.detach().to(at::kFloat8_e4m3fn),
                   small_weight = weight.detach().to(at::kFloat8_e4m3fn);
  const bool is_forward = variant == "fp8_forward" || variant == "scaled_mm";
  if (variant == "fp8_forward")
    work = [&] {
      const at::NoGradGuard no_grad;
      const accel::precision::AutocastGuard autocast(accel::Precision::kBf16, c10::DeviceType::CPU);
      accel::nn::fp8_linear(input, weight, {}, "HYBRID");
    };
  if (variant == "scaled_mm") work = [&] { at::_scaled_mm(small, small_weight.t(), one, one, {}, {}, at::kBFloat16); };
  char params[160];
  std::snprintf(params, sizeof params, "{\"variant\": \"%s\", \"rows\": %lld, \"inputs\": %lld, \"outputs\": %lld}",
                variant.c_str(), static_cast<long long>(rows), static_cast<long long>(inputs),
                static_cast<long long>(outputs));
  report(state, "fp8_linear", params, time_of(repetitions, work), is_forward ? "\"forward_only\": true" : "");
}

}  // namespace

int main(int argc, char **argv) {
  enum { ROWS, INPUTS, OUTPUTS, STEPS, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--rows", "512"}, {"--inputs", "1024"}, {"--outputs", "1024"}, {"--steps", "20"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  accel_state_t *const state = measure_state(ACCEL_STATE_OPTIONS_INIT, "cpu");
  const int64_t steps = measure_integer(&options[STEPS]);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const auto &set : accel::kernels::instruction_sets()) {
    const double copied = copied_by_second(steps);
    measure_casts(state, set, copied, steps);
  }
  at::set_num_threads(threads);
  for (const char *const variant : {"fp8", "bf16", "float32", "fp8_forward", "scaled_mm"})
    measure_linear(state, variant, measure_integer(&options[ROWS]), measure_integer(&options[INPUTS]),
                   measure_integer(&options[OUTPUTS]), steps);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
