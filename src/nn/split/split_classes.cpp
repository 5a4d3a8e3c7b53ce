// SPDX-License-Identifier: Apache-2.0
#include "nn/split/split_classes.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/split/marks.hpp"
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

using WeightMarks = Marks<WeakTensor, SplitClasses>;
using StorageMarks = Marks<c10::weak_intrusive_ptr<c10::StorageImpl>, SplitClasses>;

WeightMarks& weights() {
  static WeightMarks& marks = *std::make_unique<WeightMarks>().release();
  return marks;
}
// The scores themselves are known by these, and so are their views without a graph.
StorageMarks& storages() {
  static StorageMarks& marks = *std::make_unique<StorageMarks>().release();
  return marks;
}

struct Source {
  const Node* node = nullptr;
  bool is_alone = true;  // nothing else is behind the nodes on the way to it
};

// The nearest node of a kind in a graph.
template <typename Kind>
Source find_source(const at::Tensor& tensor) {
  constexpr size_t kMostNodes = 128;
  std::vector<const Node*> nodes;
  if (const Node* const last = tensor.grad_fn().get()) nodes.push_back(last);
  bool is_alone = true;
  for (size_t i = 0; i < nodes.size(); i++) {
    if (dynamic_cast<const Kind*>(nodes[i]) != nullptr) return {nodes[i], is_alone};
    for (const torch::autograd::Edge& edge : nodes[i]->next_edges()) {
      if (!edge.is_valid() || nodes.size() == kMostNodes) continue;
      if (std::find(nodes.begin(), nodes.end(), edge.function.get()) == nodes.end())
        nodes.push_back(edge.function.get());
    }
    is_alone = is_alone && nodes.size() <= i + 2;
  }
  return {};
}

bool has_size(const SplitClassesPtr& classes, const at::Tensor& tensor, int64_t dim) {
  return classes != nullptr && dim >= -tensor.dim() && dim < tensor.dim() && tensor.size(dim) == classes->share->size;
}

SplitClassesPtr owned(SplitClassesPtr classes) {
  require(classes != nullptr, Status::kInvalidState,
          "the weight has some rows of the head of a split model that is gone; expected one of a model that exists");
  return classes;
}

}  // namespace

at::Tensor mark_split_scores(const at::Tensor& scores, SplitClassesPtr classes) {
  storages().set(scores.storage().getWeakStorageImpl(), classes, /*owns=*/false);
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
  SplitClassesPtr classes;
  const Source source = find_source<SplitScores>(scores);
  if (source.node != nullptr)
    classes = static_cast<const SplitScores*>(source.node)->classes;
  else if (scores.has_storage())
    classes = storages().find(scores.storage().unsafeGetStorageImpl()).value_or(nullptr);
  if (!has_size(classes, scores, dim)) return nullptr;
  require(source.is_alone, Status::kUnsupported,
          "a loss or another operator on classes was called with what is computed from logits of which each rank "
          "has some classes (loss_parallel) and another tensor that requires a gradient; expected the scores alone, a "
          "call of the model without gradients, whose scores are whole, or accel_parallel_gather()");
  return classes;
}

void mark_split_weight(const at::Tensor& weight, const SplitClassesPtr& classes, ClassesOwner owner) {
  weights().set(WeakTensor(weight.getIntrusivePtr()), classes, owner == ClassesOwner::kMark);
}

SplitClassesPtr split_classes_of_weight(const at::Tensor& weight) {
  if (auto classes = weights().find(weight.unsafeGetTensorImpl())) return owned(*std::move(classes));
  const Source source = find_source<AccumulateGrad>(weight);
  if (source.node == nullptr || !source.is_alone) return nullptr;
  const at::Tensor& leaf = static_cast<const AccumulateGrad*>(source.node)->variable;
  const auto classes = weights().find(leaf.unsafeGetTensorImpl());
  return classes && has_size(owned(*classes), weight, 0) ? *classes : nullptr;
}

}  // namespace accel::nn
