#include "accelerator/gradient_sums.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

constexpr const char* kRows = "rows";    // of a sharded parameter
constexpr const char* kFirst = "first";  // of these rows, in the whole

std::vector<c10::IValue> list_of_gradients(const c10::IValue& saved) {
  require(saved.isList(), Status::kCorrupt, "the saved gradients are no list");
  return saved.toListRef().vec();
}

struct SavedGradient {
  at::Tensor tensor;  // undefined: there is none
  std::optional<int64_t> first;
};

SavedGradient read_gradient(const c10::IValue& saved) {
  if (saved.isTensor()) return {saved.toTensor(), std::nullopt};
  if (!saved.isGenericDict()) return {};
  const auto map = saved.toGenericDict();
  const auto rows = map.find(kRows), first = map.find(kFirst);
  require(rows != map.end() && rows->value().isTensor() && first != map.end() && first->value().isInt(),
          Status::kCorrupt, "a saved gradient lacks '", kRows, "' or '", kFirst, "'");
  return {rows->value().toTensor(), first->value().toInt()};
}

// What each rank saved of one gradient.
std::vector<SavedGradient> gradients_of_ranks(const std::vector<c10::IValue>& states, size_t index) {
  std::vector<SavedGradient> gradients;
  for (const c10::IValue& of_rank : states) {
    const auto list = list_of_gradients(of_rank);
    gradients.push_back(index < list.size() ? read_gradient(list[index]) : SavedGradient());
  }
  return gradients;
}

bool has_shape(const SavedGradient& saved, c10::IntArrayRef shape) {
  const c10::IntArrayRef own = saved.tensor.sizes();
  if (!saved.first) return own == shape;
  return !own.empty() && own.size() == shape.size() && own.slice(1) == shape.slice(1) && *saved.first >= 0 &&
         own[0] <= shape[0] - *saved.first;
}

// The mean over the ranks; undefined if none has a gradient.
at::Tensor join(const std::vector<SavedGradient>& saved, c10::IntArrayRef shape) {
  at::Tensor whole;
  double parts = 1;
  for (const SavedGradient& one : saved) {
    if (!one.tensor.defined()) continue;
    if (!whole.defined()) whole = at::zeros(shape, one.tensor.options());
    if (one.first) {
      whole.narrow(0, *one.first, one.tensor.size(0)).copy_(one.tensor);
      continue;
    }
    whole.add_(one.tensor);
    parts = static_cast<double>(saved.size());
  }
  return whole.defined() ? whole.div_(parts) : whole;
}

}  // namespace

std::vector<GradientSums::Parameter> GradientSums::parameters() const {
  std::vector<Parameter> parameters;
  for (const auto& model : models_)
    for (const at::Tensor& parameter : model->module()->parameters())
      parameters.push_back({parameter, model->shard_of(parameter)});
  return parameters;
}

c10::IValue GradientSums::state_dict() const {
  auto gradients = tree::new_list();
  if (!open_) return gradients;
  for (const auto& [parameter, shard] : parameters()) {
    if (!parameter.grad().defined()) {
      gradients.push_back(c10::IValue());
    } else if (shard == nullptr) {
      gradients.push_back(c10::IValue(parameter.grad()));
    } else {
      auto rows = tree::new_map();
      rows.insert(kRows, parameter.grad());
      rows.insert(kFirst, shard->offset[0]);
      gradients.push_back(rows);
    }
  }
  return gradients;
}

// In place, because gradients may be views of communication buckets. Gradients from before the load are dropped: a
// parameter without one is not updated, whereas zeros move it by its moments.
void GradientSums::load_state_dict(const c10::IValue& state) {
  const at::NoGradGuard no_grad;
  const auto gradients = list_of_gradients(state);
  size_t next = 0;
  for (const auto& [parameter, shard] : parameters()) {
    const at::Tensor gradient = next < gradients.size() ? read_gradient(gradients[next]).tensor : at::Tensor();
    next++;
    if (!gradient.defined()) {
      parameter.mutable_grad().reset();
      continue;
    }
    require(gradient.sizes() == parameter.sizes(), Status::kShapeMismatch, "a saved gradient has shape ",
            gradient.sizes(), " and its parameter ", parameter.sizes());
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    parameter.mutable_grad().copy_(gradient);
  }
}

void GradientSums::check_states_of_ranks(const std::vector<c10::IValue>& states) const {
  size_t index = 0;
  for (const auto& [parameter, shard] : parameters()) {
    const c10::IntArrayRef shape = shard == nullptr ? parameter.sizes() : c10::IntArrayRef(shard->shape);
    for (const SavedGradient& saved : gradients_of_ranks(states, index))
      require(!saved.tensor.defined() || has_shape(saved, shape), Status::kShapeMismatch, "a saved gradient has shape ",
              saved.tensor.sizes(), " and its parameter ", shape);
    index++;
  }
}

void GradientSums::load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
  const at::NoGradGuard no_grad;
  auto own = tree::new_list();
  size_t index = 0;
  for (const auto& [parameter, shard] : parameters()) {
    const c10::IntArrayRef shape = shard == nullptr ? parameter.sizes() : c10::IntArrayRef(shard->shape);
    const at::Tensor whole = join(gradients_of_ranks(states, index++), shape);
    if (!whole.defined())
      own.push_back(c10::IValue());
    else
      own.push_back(
          c10::IValue(shard == nullptr ? whole : whole.narrow(0, shard->offset[0], parameter.size(0)).clone()));
  }
  load_state_dict(own);
}

}  // namespace accel::accelerator
