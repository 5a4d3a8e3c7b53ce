// Tensors in pieces: how the state of a model or optimizer that is sharded over the ranks is saved and loaded.
//
// In a state that is saved, a tensor may be a TensorPiece: the box of a larger tensor that this rank has. In a state
// that is loaded, it may be a SavedTensor, from which an object reads the box that it needs, whatever the boxes were
// when it was saved.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace accel::tensor {

// A range of indices in each dimension.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> sizes;
};

struct TensorPiece final : torch::CustomClassHolder {
  TensorPiece(at::Tensor data, std::vector<int64_t> global_shape, std::vector<int64_t> offset)
      : data(std::move(data)), global_shape(std::move(global_shape)), offset(std::move(offset)) {}

  Box box() const { return {offset, data.sizes().vec()}; }

  const at::Tensor data;
  const std::vector<int64_t> global_shape;
  const std::vector<int64_t> offset;  // of the first element of `data` in the whole tensor
};

class SavedTensor : public torch::CustomClassHolder {
 public:
  virtual at::ScalarType dtype() const = 0;
  virtual const std::vector<int64_t>& shape() const = 0;
  // A tensor on the CPU with these elements, which must be inside of the shape. Reads no others.
  virtual at::Tensor read(const Box& box) const = 0;
  // Throws what read() would.
  virtual void check(const Box& box) const = 0;
};

// `data` must be inside of `global_shape`. Where several ranks have the same piece, one of them saves it; the others
// save None.
c10::IValue piece_value(at::Tensor data, std::vector<int64_t> global_shape, std::vector<int64_t> offset);
// Null for a value of another kind.
const TensorPiece* piece_of(const c10::IValue& value);

c10::IValue saved_tensor_value(c10::intrusive_ptr<SavedTensor> tensor);
const SavedTensor* saved_tensor_of(const c10::IValue& value);

// The shape of a tensor or a SavedTensor, and a box of it. Other values are a TYPE_MISMATCH that names `name`.
std::vector<int64_t> shape_of_saved(const c10::IValue& value, const std::string& name);
at::Tensor read_box(const c10::IValue& value, const Box& box, const std::string& name);
void check_box(const c10::IValue& value, const Box& box, const std::string& name);

}  // namespace accel::tensor
