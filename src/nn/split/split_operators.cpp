// SPDX-License-Identifier: Apache-2.0
#include "nn/split/split_operators.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "kernels/dispatcher_override.hpp"
#include "nn/call_path.hpp"
#include "nn/split/split_classes.hpp"
#include "nn/split/split_cross_entropy.hpp"
#include "nn/split/split_loss.hpp"
#include "nn/split/split_sequence.hpp"

namespace accel::nn {
namespace {

using Attention = at::_ops::scaled_dot_product_attention;
using CrossEntropy = at::_ops::cross_entropy_loss;

// Both operators are composites of others. A call reaches the kernel for autograd, which differentiates nothing itself,
// or in inference mode the one below it.
enum class Installed { kOnAutograd, kBelow };

template <Installed kWhere>
constexpr c10::DispatchKeySet kFurther =
    kWhere == Installed::kOnAutograd ? c10::after_autograd_keyset : kernels::kBelowOverrides;

template <Installed kWhere>
at::Tensor attention(c10::DispatchKeySet keys, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool is_causal, std::optional<double> scale,
                     bool enable_gqa) {
  const auto split = SplitSequence::current();
  if (split == nullptr)
    return Attention::redispatch(keys & kFurther<kWhere>, query, key, value, mask, dropout, is_causal, scale,
                                 enable_gqa);
  if (mask && mask->defined())
    fail(Status::kUnsupported, in_called_module(),
         "attention over a split sequence has a mask; expected none, or is_causal");
  if (dropout != 0)
    fail(Status::kUnsupported, in_called_module(), "attention over a split sequence has a dropout of ", dropout,
         "; expected 0");
  return split->attention(query, key, value, is_causal, scale);
}

// NOLINTBEGIN(performance-unnecessary-value-param): the dispatcher passes a SymInt so
template <Installed kWhere>
at::Tensor cross_entropy(c10::DispatchKeySet keys, const at::Tensor& scores, const at::Tensor& target,
                         const std::optional<at::Tensor>& class_weight, int64_t reduction, c10::SymInt ignore_index,
                         double label_smoothing) {
  // NOLINTEND(performance-unnecessary-value-param)
  const auto split = reduction == at::Reduction::Mean ? SplitSequence::current() : nullptr;
  const auto classes = split == nullptr ? split_classes_of_scores(scores, scores.dim() == 1 ? 0 : 1) : nullptr;
  if (classes != nullptr)
    return split_cross_entropy(scores, target, class_weight, reduction, ignore_index.guard_int(__FILE__, __LINE__),
                               label_smoothing, classes);
  if (split == nullptr)
    return CrossEntropy::redispatch(keys & kFurther<kWhere>, scores, target, class_weight, reduction, ignore_index,
                                    label_smoothing);
  const at::Tensor sum =
      CrossEntropy::call(scores, target, class_weight, at::Reduction::Sum, ignore_index, label_smoothing);
  // A target of the scores' shape is a probability of each class.
  const bool has_classes = scores.sizes() != target.sizes();
  const at::Tensor count = has_classes
                               ? counted_targets(target, class_weight, ignore_index.guard_int(__FILE__, __LINE__))
                               : at::scalar_tensor(target.numel() / scores.size(scores.dim() == 1 ? 0 : 1),
                                                   scores.options().dtype(at::kLong).requires_grad(false));
  return split->mean(sum, count);
}

// These mix classes, and would see those of this rank alone.
constexpr const char* kMixClasses[] = {"_softmax", "_log_softmax", "logsumexp", "argmax", "max.dim", "topk"};

void refuse_split_scores(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::IValue& scores = torch::jit::peek(*stack, 0, operation.schema().arguments().size());
  require(!scores.isTensor() || split_classes_of_scores(scores.toTensor(), -1) == nullptr, Status::kUnsupported,
          operation.operator_name().name,
          " was called with logits of which each rank has some classes (loss_parallel); expected cross entropy, a "
          "call of the model without gradients, whose scores are whole, or accel_parallel_gather()");
  operation.redispatchBoxed(keys & kernels::kBelowOverrides, stack);
}

template <Installed kWhere>
void install(torch::Library& overrides) {
  overrides.impl("scaled_dot_product_attention", TORCH_FN(attention<kWhere>));
  overrides.impl("cross_entropy_loss", TORCH_FN(cross_entropy<kWhere>));
}

c10::DispatchKey autograd_key_of(c10::Device device) {
  return c10::getAutogradKeyFromBackend(
      c10::toBackendComponent(c10::computeDispatchKey(std::nullopt, std::nullopt, device)));
}

}  // namespace

// Never destroyed: operators may run while the process ends.
void install_split_operators(c10::Device device) {
  struct Installation {
    std::mutex mutex;
    std::map<c10::DispatchKey, std::unique_ptr<torch::Library>> of_autograd;
  };
  static Installation& installed = *std::make_unique<Installation>().release();
  const std::lock_guard<std::mutex> lock(installed.mutex);
  if (installed.of_autograd.empty()) install<Installed::kBelow>(kernels::dispatcher_overrides());
  std::unique_ptr<torch::Library>& library = installed.of_autograd[autograd_key_of(device)];
  if (library != nullptr) return;
  library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", autograd_key_of(device), __FILE__, __LINE__);
  install<Installed::kOnAutograd>(*library);
}

void install_split_classes(c10::Device device) {
  install_split_operators(device);
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* const name : kMixClasses)
      kernels::dispatcher_overrides().impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_split_scores>());
  });
}

}  // namespace accel::nn
