#include "accelerator/gradient_sums.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

constexpr const char* kRows = "rows";    // of a sharded parameter
constexpr const char* kFirst = "first";  // of these rows, in the whole

std::vector<c10::IValue> list_of_gradients(const c10::IValue& saved) {
  require(saved.isList(), Status::kCorrupt, "the saved gradients are not a list");
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

// The part that each rank saved of each of `count` gradients: [gradient][rank].
std::vector<std::vector<SavedGradient>> gradients_of_ranks(const std::vector<c10::IValue>& states, size_t count) {
  std::vector<std::vector<SavedGradient>> gradients(count, std::vector<SavedGradient>(states.size()));
  for (size_t rank = 0; rank < states.size(); rank++) {
    const auto list = list_of_gradients(states[rank]);
    for (size_t i = 0; i < std::min(count, list.size()); i++) gradients[i][rank] = read_gradient(list[i]);
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

c10::IntArrayRef GradientSums::Parameter::whole_shape() const {
  return shard == nullptr ? tensor.sizes() : c10::IntArrayRef(shard->shape);
}

void GradientSums::check_states_of_ranks(const std::vector<c10::IValue>& states) const {
  const std::vector<Parameter> own = parameters();
  const auto gradients = gradients_of_ranks(states, own.size());
  for (size_t i = 0; i < own.size(); i++)
    for (const SavedGradient& saved : gradients[i])
      require(!saved.tensor.defined() || has_shape(saved, own[i].whole_shape()), Status::kShapeMismatch,
              "a saved gradient has shape ", saved.tensor.sizes(), " and its parameter ", own[i].whole_shape());
}

void GradientSums::load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
  const at::NoGradGuard no_grad;
  const std::vector<Parameter> own = parameters();
  const auto gradients = gradients_of_ranks(states, own.size());
  auto means = tree::new_list();
  for (size_t i = 0; i < own.size(); i++) {
    at::Tensor mean = join(gradients[i], own[i].whole_shape());
    if (mean.defined() && own[i].shard != nullptr)
      mean = mean.narrow(0, own[i].shard->offset[0], own[i].tensor.size(0)).clone();
    means.push_back(mean.defined() ? c10::IValue(mean) : c10::IValue());
  }
  load_state_dict(means);
}

}  // namespace accel::accelerator
