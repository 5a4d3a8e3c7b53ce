#include "parallel/pipeline/boundary_value.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "comm/object_message.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  tree::for_each_tensor(value, [&tensors](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

std::string describe(const c10::IValue& value) {
  std::vector<c10::IValue> sizes, gradients;
  const c10::IValue structure = tree::map_tensors(value, [&](const at::Tensor& tensor) {
    std::vector<c10::IValue> shape;
    for (const int64_t size : tensor.sizes()) shape.emplace_back(size);
    sizes.emplace_back(tree::new_list(std::move(shape)));
    gradients.emplace_back(tensor.requires_grad());
    return at::empty({0}, tensor.options().device(c10::kCPU));
  });
  return comm::encode_object(
      tree::new_list({structure, tree::new_list(std::move(sizes)), tree::new_list(std::move(gradients))}));
}

ValueLayout::ValueLayout(std::string_view description) {
  const c10::IValue decoded = comm::decode_object(description);
  const auto parts = tree::sequence_items(decoded);
  structure_ = parts[0];
  for (const c10::IValue& shape : tree::sequence_items(parts[1])) {
    sizes_.emplace_back();
    for (const c10::IValue& size : tree::sequence_items(shape)) sizes_.back().push_back(size.toInt());
  }
  for (const c10::IValue& wanted : tree::sequence_items(parts[2])) wants_gradient_.push_back(wanted.toBool());
}

std::vector<at::Tensor> ValueLayout::allocate(c10::Device device) const {
  std::vector<at::Tensor> tensors;
  tree::for_each_tensor(structure_, [&](const at::Tensor& like) {
    tensors.push_back(at::empty(sizes_[tensors.size()], like.options().device(device)));
  });
  return tensors;
}

c10::IValue ValueLayout::value_of(const std::vector<at::Tensor>& tensors) const {
  size_t next = 0;
  return tree::map_tensors(structure_, [&](const at::Tensor&) {
    const size_t index = next++;
    return wants_gradient_[index] ? tensors[index].requires_grad_() : tensors[index];
  });
}

}  // namespace accel::parallel
