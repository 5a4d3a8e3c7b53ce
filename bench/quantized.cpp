// SPDX-License-Identifier: Apache-2.0
// Workload quantized: products of a few inputs with a quantized weight, [size, size], by the kernels of this library
// and by LibTorch's packed ones, beside linear layers in float32 and bfloat16. Several weights are used in turn, so
// that caches do not have them.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_convert_weight_to_int4pack_for_cpu.h>
#include <ATen/ops/_weight_int4pack_mm_for_cpu.h>
#include <ATen/ops/_weight_int8pack_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <accel.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/quantized/quantized_weight.hpp"
#include "kernels/update/elementwise.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"

namespace {

using accel::kernels::QuantizedWeight;
using accel::kernels::WeightCode;
using accel::kernels::WeightFormat;

constexpr int64_t kGroup = 128, kBlock = 64, kWarmUps = 3;
constexpr double kDeviation = 0.02;

struct Problem {
  accel_state_t *state;
  int64_t batch, size, steps;
  std::vector<at::Tensor> weights;  // float32
  at::Tensor inputs, outputs;       // float32
};

// Runs work(i), which uses weight i and returns the outputs, and reports its time and its error with weight 0.
void measure_kind(const Problem &problem, const char *kind, const char *by, double weight_bytes,
                  const std::function<at::Tensor(size_t)> &work) {
  const size_t n_weights = problem.weights.size();
  std::vector<double> samples;
  for (int64_t i = -kWarmUps; i < problem.steps; i++) {
    const double start = measure_now();
    work(static_cast<size_t>(i + kWarmUps) % n_weights);
    if (i >= 0) samples.push_back((measure_now() - start) * 1e6);
  }
  const at::Tensor found = work(0).to(at::kFloat);
  const double error = ((found - problem.outputs).norm() / problem.outputs.norm()).item<double>();
  char params[160], extra[120];
  std::snprintf(params, sizeof params, "{\"kind\": \"%s\", \"by\": \"%s\", \"batch\": %lld, \"size\": %lld}", kind, by,
                static_cast<long long>(problem.batch), static_cast<long long>(problem.size));
  std::snprintf(extra, sizeof extra, "\"relative_error\": %.3g, \"gb_per_s\": %.3g", error,
                1e-3 * weight_bytes / measure_median(samples.data(), samples.size()));
  const figure line = {"quantized", params, "us", 0, samples.data(), samples.size(), 0, extra};
  measure_report(problem.state, &line);
}

// A weight and its memory.
struct StoredWeight {
  at::Tensor codes, scales, offsets;
  QuantizedWeight weight;
};

StoredWeight quantized(const at::Tensor &values, const WeightFormat &format) {
  const int64_t rows = values.size(0), columns = values.size(1);
  StoredWeight stored;
  stored.codes = at::empty({code_bytes(format, rows, columns)}, at::kByte);
  stored.scales = at::empty({rows, groups_of_row(format, columns)}, at::kFloat);
  if (format.has_offsets) stored.offsets = at::empty({rows, groups_of_row(format, columns)}, at::kFloat);
  float *const offsets = format.has_offsets ? stored.offsets.mutable_data_ptr<float>() : nullptr;
  accel::kernels::quantize_weight(values.const_data_ptr(), accel::kernels::Format::kFloat, rows, columns, format,
                                  stored.codes.mutable_data_ptr<uint8_t>(), stored.scales.mutable_data_ptr<float>(),
                                  offsets);
  stored.weight = {format, rows, columns, stored.codes.const_data_ptr<uint8_t>(), stored.scales.const_data_ptr<float>(),
                   offsets};
  return stored;
}

void measure_format(const Problem &problem, const char *kind, const WeightFormat &format, bool is_dynamic) {
  std::vector<StoredWeight> weights;
  for (const at::Tensor &values : problem.weights) weights.push_back(quantized(values, format));
  const auto bytes = static_cast<double>(weights[0].codes.nbytes() + weights[0].scales.nbytes() +
                                         (format.has_offsets ? weights[0].offsets.nbytes() : 0));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor inputs = problem.inputs.to(dtype);
    const auto number = accel::kernels::span_of(inputs).format;
    const std::string name = std::string(kind) + (dtype == at::kFloat ? "_fp32" : "_bf16");
    measure_kind(problem, name.c_str(), "libaccel", bytes, [&](size_t i) {
      const at::Tensor outputs = at::empty({problem.batch, problem.size}, inputs.options());
      const auto multiply =
          is_dynamic ? accel::kernels::multiply_quantized_dynamic : accel::kernels::multiply_quantized;
      multiply(weights[i].weight, inputs.const_data_ptr(), problem.batch, nullptr, outputs.mutable_data_ptr(), number);
      return outputs;
    });
  }
}

void measure_linear(const Problem &problem, at::ScalarType dtype) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor &values : problem.weights) weights.push_back(values.to(dtype));
  const at::Tensor inputs = problem.inputs.to(dtype);
  measure_kind(problem, dtype == at::kFloat ? "fp32" : "bf16", "linear", static_cast<double>(weights[0].nbytes()),
               [&](size_t i) { return at::linear(inputs, weights[i]); });
}

// LibTorch's packed kernels: int8 with a scale for each row, and int4 in groups with a scale and an offset.
void measure_libtorch(const Problem &problem, at::ScalarType dtype) {
  const std::string suffix = dtype == at::kFloat ? "_fp32" : "_bf16";
  const at::Tensor inputs = problem.inputs.to(dtype);
  std::vector<at::Tensor> bytes, scales, halves, of_groups;
  for (const at::Tensor &values : problem.weights) {
    const at::Tensor scale = values.abs().amax(1, true) / 127;
    bytes.push_back((values / scale).round().to(at::kChar));
    scales.push_back(scale.flatten().to(dtype));
    const at::Tensor groups = values.reshape({problem.size, -1, kGroup});
    const at::Tensor low = groups.amin(2, true), step = (groups.amax(2, true) - low) / 15;
    const at::Tensor codes = ((groups - low) / step).round().to(at::kInt).reshape(values.sizes());
    halves.push_back(at::_convert_weight_to_int4pack_for_cpu(codes, 1));
    // A code c is scale * (c - 8) + zero.
    const at::Tensor zero = low + step * 8;
    of_groups.push_back(at::stack({step.squeeze(2).t(), zero.squeeze(2).t()}, 2).contiguous().to(dtype));
  }
  measure_kind(problem, ("int8_weight_only" + suffix).c_str(), "libtorch", static_cast<double>(bytes[0].nbytes()),
               [&](size_t i) { return at::_weight_int8pack_mm(inputs, bytes[i], scales[i]); });
  measure_kind(problem, ("int4_weight_only" + suffix).c_str(), "libtorch",
               static_cast<double>(halves[0].nbytes() + of_groups[0].nbytes()),
               [&](size_t i) { return at::_weight_int4pack_mm_for_cpu(inputs, halves[i], kGroup, of_groups[i]); });
}

}  // namespace

int main(int argc, char **argv) {
  enum { BATCH, SIZE, WEIGHTS, STEPS, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--batch", "1"}, {"--size", "4096"}, {"--weights", "4"}, {"--steps", "15"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  accel_state_t *const state = measure_state(ACCEL_STATE_OPTIONS_INIT, "cpu");
  const at::NoGradGuard no_grad;
  Problem problem{state,
                  measure_integer(&options[BATCH]),
                  measure_integer(&options[SIZE]),
                  measure_integer(&options[STEPS]),
                  {},
                  {},
                  {}};
  for (int64_t i = 0; i < measure_integer(&options[WEIGHTS]); i++)
    problem.weights.push_back(at::randn({problem.size, problem.size}) * kDeviation);
  problem.inputs = at::randn({problem.batch, problem.size});
  problem.outputs = at::linear(problem.inputs, problem.weights[0]);
  measure_linear(problem, at::kFloat);
  measure_linear(problem, at::kBFloat16);
  measure_format(problem, "int8_weight_only", {WeightCode::kInt8, 0, false}, false);
  measure_format(problem, "int8_dynamic", {WeightCode::kInt8, 0, false}, true);
  measure_format(problem, "int4_weight_only", {WeightCode::kInt4, kGroup, true}, false);
  measure_format(problem, "int4_symmetric", {WeightCode::kInt4, kGroup, false}, false);
  measure_format(problem, "nf4", {WeightCode::kNf4, kBlock, false}, false);
  measure_format(problem, "fp4", {WeightCode::kFp4, kBlock, false}, false);
  measure_format(problem, "e4m3", {WeightCode::kFloat8E4M3, 0, false}, false);
  measure_format(problem, "e5m2", {WeightCode::kFloat8E5M2, 0, false}, false);
  measure_libtorch(problem, at::kFloat);
  measure_libtorch(problem, at::kBFloat16);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
