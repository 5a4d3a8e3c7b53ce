#include "nn/split/split_classes.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tensor/autograd/autograd_node.hpp"

namespace accel::nn {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;
using torch::autograd::variable_list;

class SplitScores final : public Node {
 public:
  using Node::Node;
  std::string name() const override { return "SplitScores"; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  SplitClassesPtr classes;
};

// By identity. What is gone is forgotten at the next one.
template <typename Weak>
class Marks {
 public:
  void set(Weak weak, SplitClassesPtr classes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto mark = marks_.begin(); mark != marks_.end();)
      mark = mark->second.first.expired() ? marks_.erase(mark) : std::next(mark);
    const void* const key = weak._unsafe_get_target();
    marks_.insert_or_assign(key, std::pair(std::move(weak), std::move(classes)));
  }
  SplitClassesPtr find(const void* key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = marks_.find(key);
    return found == marks_.end() || found->second.first.expired() ? nullptr : found->second.second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, std::pair<Weak, SplitClassesPtr>> marks_;
};

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Never destroyed: tensors may outlive static objects.
Marks<WeakTensor>& weights() {
  static Marks<WeakTensor>& marks = *std::make_unique<Marks<WeakTensor>>().release();
  return marks;
}
// The scores themselves are known by these, and so are their views without a graph.
Marks<WeakStorage>& storages() {
  static Marks<WeakStorage>& marks = *std::make_unique<Marks<WeakStorage>>().release();
  return marks;
}

// The end of a graph without branches.
const Node* source_of(const at::Tensor& tensor) {
  constexpr int kMostNodes = 64;
  const Node* node = tensor.grad_fn().get();
  for (int walked = 0; node != nullptr && walked < kMostNodes; walked++) {
    if (dynamic_cast<const SplitScores*>(node) != nullptr) return node;
    const Node* next = nullptr;
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      if (next != nullptr) return nullptr;
      next = edge.function.get();
    }
    if (next == nullptr) return node;
    node = next;
  }
  return nullptr;
}

SplitClassesPtr with_size(SplitClassesPtr classes, const at::Tensor& tensor, int64_t dim) {
  const bool has_classes =
      classes != nullptr && dim >= -tensor.dim() && dim < tensor.dim() && tensor.size(dim) == classes->share->size;
  return has_classes ? classes : nullptr;
}

}  // namespace

at::Tensor mark_split_scores(const at::Tensor& scores, SplitClassesPtr classes) {
  storages().set(scores.storage().getWeakStorageImpl(), classes);
  const auto node = tensor::make_autograd_node<SplitScores>(torch::autograd::collect_next_edges(scores));
  node->classes = std::move(classes);
  at::Tensor marked;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    marked = scores.detach();
  }
  torch::autograd::set_history(marked, node);
  return marked;
}

SplitClassesPtr split_classes_of_scores(const at::Tensor& scores, int64_t dim) {
  if (!scores.defined()) return nullptr;
  const auto* const marked = dynamic_cast<const SplitScores*>(source_of(scores));
  if (marked != nullptr) return with_size(marked->classes, scores, dim);
  return scores.has_storage() ? with_size(storages().find(scores.storage().unsafeGetStorageImpl()), scores, dim)
                              : nullptr;
}

void mark_split_weight(const at::Tensor& weight, SplitClassesPtr classes) {
  weights().set(WeakTensor(weight.getIntrusivePtr()), std::move(classes));
}

SplitClassesPtr split_classes_of_weight(const at::Tensor& weight) {
  if (auto classes = weights().find(weight.unsafeGetTensorImpl())) return classes;
  const auto* const leaf = dynamic_cast<const AccumulateGrad*>(source_of(weight));
  return leaf == nullptr ? nullptr : with_size(weights().find(leaf->variable.unsafeGetTensorImpl()), weight, 0);
}

}  // namespace accel::nn
