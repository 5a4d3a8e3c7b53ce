// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/gradient_sums.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

constexpr const char* kPart = "part";    // of the gradient, as a rank stores its parameter
constexpr const char* kBoxes = "boxes";  // of the part: for each its offset, its sizes and the offset in the part

std::vector<c10::IValue> list_of_gradients(const c10::IValue& saved) {
  require(saved.isList(), Status::kCorrupt, "the saved gradients are not a list");
  return saved.toListRef().vec();
}

struct SavedGradient {
  at::Tensor tensor;                     // undefined: there is none
  std::vector<tensor::PlacedBox> boxes;  // empty: the tensor is whole
};

c10::IValue print(const std::vector<tensor::PlacedBox>& boxes) {
  auto list = tree::new_list();
  for (const tensor::PlacedBox& box : boxes)
    for (const auto* const numbers : {&box.whole.offset, &box.whole.sizes, &box.local}) {
      auto items = tree::new_list();
      for (const int64_t number : *numbers) items.push_back(number);
      list.push_back(items);
    }
  return list;
}

std::vector<int64_t> read_numbers(const c10::IValue& saved, size_t dimensions) {
  std::vector<int64_t> numbers;
  if (saved.isList())
    for (const c10::IValue& item : saved.toListRef())
      if (item.isInt() && item.toInt() >= 0) numbers.push_back(item.toInt());
  require(numbers.size() == dimensions, Status::kCorrupt, "a saved gradient has boxes of other than ", dimensions,
          " dimensions");
  return numbers;
}

SavedGradient read_gradient(const c10::IValue& saved) {
  if (saved.isTensor()) return {saved.toTensor(), {}};
  if (!saved.isGenericDict()) return {};
  const auto map = saved.toGenericDict();
  const auto part = map.find(kPart), boxes = map.find(kBoxes);
  require(part != map.end() && part->value().isTensor() && boxes != map.end() && boxes->value().isList(),
          Status::kCorrupt, "a saved gradient lacks '", kPart, "' or '", kBoxes, "'");
  SavedGradient gradient{part->value().toTensor(), {}};
  const auto dimensions = static_cast<size_t>(gradient.tensor.dim());
  const auto list = boxes->value().toListRef();
  require(!list.empty() && list.size() % 3 == 0, Status::kCorrupt, "a saved gradient has ", list.size(),
          " lists of numbers; expected three for each box");
  for (size_t i = 0; i < list.size(); i += 3)
    gradient.boxes.push_back({{read_numbers(list[i], dimensions), read_numbers(list[i + 1], dimensions)},
                              read_numbers(list[i + 2], dimensions)});
  return gradient;
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
  if (saved.boxes.empty()) return own == shape;
  bool fits = own.size() == shape.size();
  for (const tensor::PlacedBox& box : saved.boxes)
    for (size_t i = 0; fits && i < shape.size(); i++)
      fits = box.whole.offset[i] <= shape[i] - box.whole.sizes[i] && box.local[i] <= own[i] - box.whole.sizes[i];
  return fits;
}

// The mean over the ranks; undefined if none has a gradient.
at::Tensor join(const std::vector<SavedGradient>& saved, c10::IntArrayRef shape) {
  at::Tensor whole;
  double parts = 1;
  for (const SavedGradient& one : saved) {
    if (!one.tensor.defined()) continue;
    if (!whole.defined()) whole = at::zeros(shape, one.tensor.options());
    for (const tensor::PlacedBox& box : one.boxes)
      tensor::narrow(whole, box.whole).copy_(tensor::narrow(one.tensor, {box.local, box.whole.sizes}));
    if (!one.boxes.empty()) continue;
    whole.add_(one.tensor);
    parts = static_cast<double>(saved.size());
  }
  return whole.defined() ? whole.div_(parts) : whole;
}

}  // namespace

std::vector<GradientSums::Parameter> GradientSums::parameters() const {
  std::vector<Parameter> parameters;
  for (const auto& model : models_) {
    const nn::Placements placements = nn::placements(*model->module());
    for (const at::Tensor& parameter : model->module()->parameters())
      parameters.push_back({parameter, placements.find(parameter)});
  }
  return parameters;
}

c10::IValue GradientSums::state_dict() const {
  auto gradients = tree::new_list();
  if (!open_) return gradients;
  for (const auto& [parameter, placement] : parameters()) {
    if (!parameter.grad().defined()) {
      gradients.push_back(c10::IValue());
    } else if (placement == nullptr) {
      gradients.push_back(c10::IValue(parameter.grad()));
    } else {
      auto part = tree::new_map();
      part.insert(kPart, parameter.grad());
      part.insert(kBoxes, print(placement->boxes));
      gradients.push_back(part);
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
  for (const auto& [parameter, placement] : parameters()) {
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
  return placement == nullptr ? tensor.sizes() : c10::IntArrayRef(placement->shape);
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
    if (mean.defined() && own[i].placement != nullptr)
      mean = tensor::read_part(mean, *own[i].placement, "a gradient").clone();
    means.push_back(mean.defined() ? c10::IValue(mean) : c10::IValue());
  }
  load_state_dict(means);
}

}  // namespace accel::accelerator
