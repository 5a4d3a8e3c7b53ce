#include "tensor/tensor_piece.hpp"

#include <ATen/core/Tensor.h>

#include <string>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::tensor {
namespace {

template <typename Holder>
const Holder* holder_of(const c10::IValue& value) {
  return value.isCapsule() ? dynamic_cast<const Holder*>(value.toCapsule().get()) : nullptr;
}

}  // namespace

c10::IValue piece_value(at::Tensor data, std::vector<int64_t> global_shape, std::vector<int64_t> offset) {
  const c10::IntArrayRef sizes = data.sizes();
  bool is_inside = sizes.size() == global_shape.size() && offset.size() == global_shape.size();
  for (size_t i = 0; is_inside && i < global_shape.size(); i++)
    is_inside = offset[i] >= 0 && sizes[i] <= global_shape[i] && offset[i] <= global_shape[i] - sizes[i];
  require(is_inside, Status::kShapeMismatch, "a piece of shape ", sizes, " at ", c10::IntArrayRef(offset),
          " is not inside of a tensor of shape ", c10::IntArrayRef(global_shape));
  return c10::IValue::make_capsule(
      c10::make_intrusive<TensorPiece>(std::move(data), std::move(global_shape), std::move(offset)));
}

const TensorPiece* piece_of(const c10::IValue& value) { return holder_of<TensorPiece>(value); }

c10::IValue saved_tensor_value(c10::intrusive_ptr<SavedTensor> tensor) {
  return c10::IValue::make_capsule(std::move(tensor));
}

const SavedTensor* saved_tensor_of(const c10::IValue& value) { return holder_of<SavedTensor>(value); }

std::vector<int64_t> shape_of_saved(const c10::IValue& value, const std::string& name) {
  if (const SavedTensor* const saved = saved_tensor_of(value)) return saved->shape();
  require(value.isTensor() && value.toTensor().defined(), Status::kTypeMismatch, "'", name, "' is of kind ",
          tree::kind_name(value), "; expected a tensor");
  return value.toTensor().sizes().vec();
}

void check_box(const c10::IValue& value, const Box& box, const std::string& name) {
  if (const SavedTensor* const saved = saved_tensor_of(value)) return saved->check(box);
  read_box(value, box, name);  // a view
}

at::Tensor read_box(const c10::IValue& value, const Box& box, const std::string& name) {
  if (const SavedTensor* const saved = saved_tensor_of(value)) return saved->read(box);
  const std::vector<int64_t> shape = shape_of_saved(value, name);
  require(box.offset.size() == shape.size() && box.sizes.size() == shape.size(), Status::kShapeMismatch, "'", name,
          "' has shape ", c10::IntArrayRef(shape), " and not ", box.sizes.size(), " dimensions");
  at::Tensor result = value.toTensor();
  for (size_t i = 0; i < shape.size(); i++)
    result = result.narrow(static_cast<int64_t>(i), box.offset[i], box.sizes[i]);
  return result;
}

}  // namespace accel::tensor
