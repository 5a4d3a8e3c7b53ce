// SPDX-License-Identifier: Apache-2.0
#include "nn/linear_cross_entropy.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/cross_entropy_chunks.hpp"
#include "nn/second_derivative.hpp"
#include "nn/split/split_classes.hpp"
#include "nn/split/split_loss.hpp"
#include "nn/split/split_sequence.hpp"
#include "precision/autocast.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/plain_operators.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

using kernels::LinearCrossEntropy;
using kernels::LinearGradients;
using kernels::LossReduction;
using kernels::WantedGradients;
using tensor::dtype_name;
using tensor::PlainOperators;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

LossReduction reduction_of(std::string_view name) {
  if (name == "mean") return LossReduction::kMean;
  if (name == "sum") return LossReduction::kSum;
  require(name == "none", Status::kInvalidArgument, "reduction is '", name, "'; expected 'mean', 'sum' or 'none'");
  return LossReduction::kNone;
}

void check_device(const at::Tensor& tensor, const char* name, const at::Tensor& input) {
  require(tensor.device() == input.device(), Status::kInvalidArgument, name, " is on ", tensor.device(),
          " and input on ", input.device(), "; expected one device");
}

void check_by_class(const at::Tensor& tensor, const char* name, const at::Tensor& input,
                    const at::Tensor& linear_weight) {
  require(tensor.dim() == 1 && tensor.size(0) == linear_weight.size(0), Status::kShapeMismatch, name, " has shape ",
          tensor.sizes(), " and linear_weight ", linear_weight.sizes(), "; expected a number for each row of it");
  check_device(tensor, name, input);
}

void check_class_weight(const at::Tensor& class_weight, const at::Tensor& input, const at::Tensor& linear_weight,
                        const kernels::ClassShare* share) {
  if (share == nullptr) return check_by_class(class_weight, "weight", input, linear_weight);
  require(class_weight.dim() == 1 && class_weight.size(0) == share->whole, Status::kShapeMismatch, "weight has shape ",
          class_weight.sizes(), ", and the ranks share ", share->whole, " classes; expected a number for each of them");
  check_device(class_weight, "weight", input);
}

void check_arguments(const at::Tensor& input, const at::Tensor& linear_weight, const at::Tensor& bias,
                     const LinearCrossEntropy& problem) {
  require(linear_weight.dim() == 2 && input.dim() >= 1 && input.size(-1) == linear_weight.size(1),
          Status::kShapeMismatch, "input has shape ", input.sizes(), " and linear_weight ", linear_weight.sizes(),
          "; expected [..., features] and [classes, features]");
  require(problem.target.sizes() == input.sizes().slice(0, input.dim() - 1), Status::kShapeMismatch,
          "target has shape ", problem.target.sizes(), " and input ", input.sizes(),
          "; expected a class for each row of the input");
  check_device(linear_weight, "linear_weight", input);
  check_device(problem.target, "target", input);
  if (bias.defined()) check_by_class(bias, "linear_bias", input, linear_weight);
  const kernels::ClassShare* const share = problem.share.get();
  require(share == nullptr || linear_weight.size(0) == share->size, Status::kInvalidState, "linear_weight has ",
          linear_weight.size(0), " of the ", share == nullptr ? 0 : share->size,
          " classes of this rank; expected a call in the forward of the module that has it, where it is gathered");
  if (problem.class_weight.defined()) check_class_weight(problem.class_weight, input, linear_weight, share);
  require(problem.label_smoothing >= 0 && problem.label_smoothing <= 1, Status::kInvalidArgument, "label_smoothing is ",
          problem.label_smoothing, "; expected 0 to 1");
  require(problem.chunk_size >= 0, Status::kInvalidArgument, "chunk_size is ", problem.chunk_size,
          "; expected a number of rows, or 0 to let it be chosen");
}

void check_dtypes(const LinearCrossEntropy& problem) {
  const auto dtype = problem.input.scalar_type();
  require(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf,
          Status::kTypeMismatch, "input is ", dtype_name(dtype), "; expected float32, float64, bfloat16 or float16");
  require(problem.weight.scalar_type() == dtype, Status::kTypeMismatch, "linear_weight is ",
          dtype_name(problem.weight.scalar_type()), " and input ", dtype_name(dtype),
          "; expected one dtype, or autocast");
  require(!problem.bias.defined() || problem.bias.scalar_type() == dtype, Status::kTypeMismatch, "linear_bias is ",
          dtype_name(problem.bias.scalar_type()), " and input ", dtype_name(dtype),
          "; expected one dtype, or autocast");
  require(!problem.class_weight.defined() || problem.class_weight.is_floating_point(), Status::kTypeMismatch,
          "weight is ", dtype_name(problem.class_weight.scalar_type()), "; expected a floating dtype");
  require(problem.target.scalar_type() == at::kLong, Status::kTypeMismatch, "target is ",
          dtype_name(problem.target.scalar_type()), "; expected int64 classes");
}

// Elsewhere LibTorch's kernels check while they run.
void check_classes(const LinearCrossEntropy& problem) {
  if (!problem.target.is_cpu()) return;
  const int64_t count = problem.share == nullptr ? problem.weight.size(0) : problem.share->whole;
  const auto* const classes = problem.target.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < problem.target.numel(); ++row) {
    const bool is_class = classes[row] >= 0 && classes[row] < count;
    require(is_class || classes[row] == problem.ignore_index, Status::kInvalidArgument, "target of row ", row, " is ",
            classes[row], "; expected a class below ", count, ", or ", problem.ignore_index, " to leave the row out");
  }
}

// The shape and dtypes of the arguments, which may differ from those of the matmuls.
struct Originals {
  std::vector<int64_t> input_sizes;
  at::ScalarType input = at::kFloat, weight = at::kFloat, bias = at::kFloat;

  void fit(LinearGradients& gradients) const {
    if (gradients.input.defined()) gradients.input = gradients.input.to(input).view(input_sizes);
    if (gradients.weight.defined()) gradients.weight = gradients.weight.to(weight);
    if (gradients.bias.defined()) gradients.bias = gradients.bias.to(bias);
  }
};

// For a scalar loss the gradients were computed with it and are stored here; for per-row losses backward computes them
// from the sums that are.
class LinearCrossEntropyBackward final : public Node {
 public:
  using Node::Node;

  std::string name() const override { return "LinearCrossEntropyBackward"; }

  variable_list apply(variable_list&& arriving) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor& loss_gradient = arriving[0];
    if (!loss_gradient.defined()) return variable_list(3);
    require(!is_released_, Status::kInvalidState,
            "accel::linear_cross_entropy was differentiated a second time; expected one backward for each call, or a "
            "retained graph");
    LinearGradients made;
    {
      const PlainOperators plain;
      made = problem.reduction == LossReduction::kNone ? gradients_of_rows(loss_gradient) : scaled(loss_gradient);
    }
    variable_list leaving = {made.input, made.weight, made.bias};
    refuse_second_derivative(
        leaving,
        "accel::linear_cross_entropy has no second derivative; use aten::linear and aten::cross_entropy_loss for it",
        next_edges());
    return leaving;
  }

  void will_release_variables() override { is_last_ = true; }
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    gradients = {};
    for (SavedVariable* saved : {&saved_input, &saved_weight, &saved_bias}) saved->reset_data();
    is_released_ = true;
  }

  LinearCrossEntropy problem;  // without input, weight and bias
  WantedGradients wanted;
  Originals originals;
  LinearGradients gradients;
  SavedVariable saved_input, saved_weight, saved_bias;
  at::ScalarType dtype = at::kFloat;  // of the matmuls

 private:
  LinearGradients gradients_of_rows(const at::Tensor& loss_gradient) const {
    LinearCrossEntropy again = problem;
    again.weight = saved_weight.unpack().to(dtype);
    again.input = saved_input.unpack().to(dtype).reshape({again.target.numel(), again.weight.size(1)});
    if (const at::Tensor bias = saved_bias.unpack(); bias.defined()) again.bias = bias.to(dtype);
    LinearGradients made =
        kernels::linear_cross_entropy_backward(again, gradients.row_sums, loss_gradient.reshape({-1}), wanted);
    originals.fit(made);
    return made;
  }

  // Used by nobody else after the last backward, so they can be changed in place.
  LinearGradients scaled(const at::Tensor& loss_gradient) {
    LinearGradients made = is_last_ ? std::exchange(gradients, {}) : gradients;
    const bool is_one = is_last_ && loss_gradient.is_cpu() && loss_gradient.item<double>() == 1;
    for (at::Tensor* gradient : {&made.input, &made.weight, &made.bias}) {
      if (!gradient->defined() || is_one) continue;
      if (is_last_)
        gradient->mul_(loss_gradient);
      else
        *gradient = gradient->mul(loss_gradient);
    }
    originals.fit(made);
    return made;
  }

  bool is_last_ = false, is_released_ = false;
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& given_input, const at::Tensor& linear_weight,
                                const at::Tensor& target, const std::optional<at::Tensor>& linear_bias,
                                const std::optional<at::Tensor>& weight, std::string_view reduction,
                                int64_t ignore_index, double label_smoothing, int64_t chunk_size) {
  if (const auto split = SplitSequence::current(); split != nullptr && reduction == "mean") {
    const at::Tensor sum = linear_cross_entropy(given_input, linear_weight, target, linear_bias, weight, "sum",
                                                ignore_index, label_smoothing, chunk_size);
    return split->mean(sum, counted_targets(target, weight, ignore_index));
  }
  const auto given = [](const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); };
  const at::Tensor bias = given(linear_bias);
  const SplitClassesPtr classes = split_classes_of_weight(linear_weight);
  const at::Tensor input = classes == nullptr ? given_input : classes->enter(given_input);
  LinearCrossEntropy problem;
  if (classes != nullptr) problem.share = classes->share;
  problem.target = target;
  problem.class_weight = given(weight);
  problem.reduction = reduction_of(reduction);
  problem.ignore_index = ignore_index;
  problem.label_smoothing = label_smoothing;
  problem.chunk_size = chunk_size;
  check_arguments(input, linear_weight, bias, problem);
  const auto autocast = precision::autocast_dtype(input.device().type());
  const auto cast = [&](const at::Tensor& tensor) {
    if (!autocast || !tensor.defined()) return tensor;
    const c10::DeviceType device = tensor.device().type();
    // The mark of what autocast casts itself, by which casts are cached.
    const c10::impl::ExcludeDispatchKeyGuard in_autocast(
        at::autocast::get_autocast_dispatch_key_from_device_type(device));
    return at::autocast::cached_cast(*autocast, tensor, device);
  };
  problem.input = cast(input);
  problem.weight = cast(linear_weight);
  problem.bias = cast(bias);
  check_dtypes(problem);

  WantedGradients wanted;
  if (at::GradMode::is_enabled()) {
    wanted = {input.requires_grad(), linear_weight.requires_grad(), bias.defined() && bias.requires_grad()};
  }
  Originals originals{input.sizes().vec(), input.scalar_type(), linear_weight.scalar_type(),
                      bias.defined() ? bias.scalar_type() : at::kFloat};
  LinearGradients gradients;
  at::Tensor loss;
  {
    const PlainOperators plain;
    problem.target = target.reshape({-1}).contiguous();
    problem.input = problem.input.reshape({target.numel(), input.size(-1)});
    check_classes(problem);
    loss = kernels::linear_cross_entropy(problem, wanted, gradients);
    if (problem.reduction == LossReduction::kNone) loss = loss.view(target.sizes());
  }
  if (!wanted.any()) return loss;

  const auto node = tensor::make_autograd_node<LinearCrossEntropyBackward>(
      torch::autograd::collect_next_edges(input, linear_weight, bias));
  node->dtype = problem.input.scalar_type();
  if (problem.reduction == LossReduction::kNone) {
    node->saved_input = SavedVariable(input, false);
    node->saved_weight = SavedVariable(linear_weight, false);
    node->saved_bias = SavedVariable(bias, false);
  }
  problem.input = problem.weight = problem.bias = at::Tensor();
  node->problem = std::move(problem);
  node->wanted = wanted;
  node->originals = std::move(originals);
  node->gradients = std::move(gradients);
  torch::autograd::set_history(loss, node);
  return loss;
}

}  // namespace accel::nn
