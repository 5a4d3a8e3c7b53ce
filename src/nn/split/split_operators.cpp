#include "nn/split/split_operators.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/library.h>

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
template <c10::DispatchKey kKey>
constexpr c10::DispatchKeySet kBelow = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);

template <c10::DispatchKey kKey>
at::Tensor attention(c10::DispatchKeySet keys, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool is_causal, std::optional<double> scale,
                     bool enable_gqa) {
  const auto split = SplitSequence::current();
  if (split == nullptr)
    return Attention::redispatch(keys & kBelow<kKey>, query, key, value, mask, dropout, is_causal, scale, enable_gqa);
  if (mask && mask->defined())
    fail(Status::kUnsupported, in_called_module(),
         "attention over a split sequence has a mask; expected none, or is_causal");
  if (dropout != 0)
    fail(Status::kUnsupported, in_called_module(), "attention over a split sequence has a dropout of ", dropout,
         "; expected 0");
  return split->attention(query, key, value, is_causal, scale);
}

// NOLINTBEGIN(performance-unnecessary-value-param): the dispatcher passes a SymInt so
template <c10::DispatchKey kKey>
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
    return CrossEntropy::redispatch(keys & kBelow<kKey>, scores, target, class_weight, reduction, ignore_index,
                                    label_smoothing);
  const at::Tensor sum =
      CrossEntropy::call(scores, target, class_weight, at::Reduction::Sum, ignore_index, label_smoothing);
  // A target of the scores' shape is a probability of each class.
  const bool has_classes = scores.sizes() != target.sizes();
  const at::Tensor count = has_classes
                               ? counted_targets(target, class_weight, ignore_index.guard_int(__FILE__, __LINE__))
                               : at::scalar_tensor(target.numel() / scores.size(scores.dim() == 1 ? 0 : 1), at::kLong);
  return split->mean(sum, count);
}

// These mix classes, and would see those of this rank alone.
constexpr const char* kMixClasses[] = {"_softmax", "_log_softmax", "logsumexp", "argmax", "max.dim", "topk"};

void refuse_split_scores(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::IValue& scores = torch::jit::peek(*stack, 0, operation.schema().arguments().size());
  require(
      !scores.isTensor() || split_classes_of_scores(scores.toTensor(), -1) == nullptr, Status::kUnsupported,
      operation.operator_name().name,
      " was called with class scores of which each rank has some classes (loss_parallel); expected cross entropy, a "
      "call of the model without gradients, whose scores are whole, or accel_parallel_gather()");
  operation.redispatchBoxed(keys & kernels::kBelowOverrides, stack);
}

template <c10::DispatchKey kKey>
void install_on_key(torch::Library& overrides) {
  overrides.impl("scaled_dot_product_attention", TORCH_FN(attention<kKey>));
  overrides.impl("cross_entropy_loss", TORCH_FN(cross_entropy<kKey>));
}

// Never destroyed: operators may run while the process ends.
torch::Library& overrides_of_autograd() {
  static torch::Library& library =
      *std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__)
           .release();
  return library;
}

}  // namespace

void install_split_operators() {
  static std::once_flag once;
  std::call_once(once, [] {
    install_on_key<c10::DispatchKey::AutogradCPU>(overrides_of_autograd());
    install_on_key<c10::DispatchKey::BackendSelect>(kernels::dispatcher_overrides());
  });
}

void install_split_classes() {
  static std::once_flag once;
  std::call_once(once, [] {
    install_split_operators();
    for (const char* const name : kMixClasses)
      kernels::dispatcher_overrides().impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_split_scores>());
  });
}

}  // namespace accel::nn
