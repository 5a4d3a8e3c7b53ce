// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/normalization.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/initial.hpp"

namespace accel::nn {
namespace {

enum Parameter : size_t { kWeight, kBias };
enum BatchBuffer : size_t { kRunningMean, kRunningVariance, kBatches };

void check_epsilon(double epsilon) {
  require(epsilon >= 0, Status::kInvalidArgument, "eps is ", epsilon, "; expected 0 or more");
}

}  // namespace

LayerNorm::LayerNorm(int64_t normalized_size, double epsilon)
    : Module("LayerNorm"), normalized_size_(normalized_size), epsilon_(epsilon) {
  check_size(normalized_size, "normalized_size");
  check_epsilon(epsilon);
  add_parameter("weight", constant_parameter(1, {normalized_size}));
  add_parameter("bias", constant_parameter(0, {normalized_size}));
}

c10::IValue LayerNorm::forward(const Inputs& inputs) {
  return at::layer_norm(only_tensor(inputs), {normalized_size_}, parameter(kWeight), parameter(kBias), epsilon_);
}

RmsNorm::RmsNorm(int64_t normalized_size, std::optional<double> epsilon)
    : Module("RMSNorm"), normalized_size_(normalized_size), epsilon_(epsilon) {
  check_size(normalized_size, "normalized_size");
  if (epsilon) check_epsilon(*epsilon);
  add_parameter("weight", constant_parameter(1, {normalized_size}));
}

c10::IValue RmsNorm::forward(const Inputs& inputs) {
  return at::rms_norm(only_tensor(inputs), {normalized_size_}, parameter(kWeight), epsilon_);
}

BatchNorm::BatchNorm(int64_t num_features, double epsilon, double momentum)
    : Module("BatchNorm"), epsilon_(epsilon), momentum_(momentum) {
  check_size(num_features, "num_features");
  check_epsilon(epsilon);
  require(momentum >= 0 && momentum <= 1, Status::kInvalidArgument, "momentum is ", momentum, "; expected 0 to 1");
  add_parameter("weight", constant_parameter(1, {num_features}));
  add_parameter("bias", constant_parameter(0, {num_features}));
  add_buffer("running_mean", at::zeros({num_features}, new_buffer_options()));
  add_buffer("running_var", at::ones({num_features}, new_buffer_options()));
  add_buffer("num_batches_tracked", at::zeros({}, new_buffer_options().dtype(at::kLong)));
}

c10::IValue BatchNorm::forward(const Inputs& inputs) {
  const at::Tensor& input = only_tensor(inputs);
  const at::Tensor& weight = parameter(kWeight);
  require(input.dim() >= 2 && input.size(1) == weight.size(0), Status::kShapeMismatch,
          "a batch norm was called with the shape ", input.sizes(), "; expected [batch, ", weight.size(0), ", ...]");
  require(!is_training() || input.numel() > input.size(1), Status::kShapeMismatch,
          "a batch norm in training was called with the shape ", input.sizes(),
          "; expected more than one value per feature");
  at::Tensor output = at::batch_norm(input, weight, parameter(kBias), buffer(kRunningMean), buffer(kRunningVariance),
                                     is_training(), momentum_, epsilon_, at::globalContext().userEnabledCuDNN());
  if (is_training()) {
    const at::NoGradGuard no_grad;
    buffer(kBatches).add_(1);
  }
  return output;
}

}  // namespace accel::nn
