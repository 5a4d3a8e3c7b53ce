#include "parallel/pipeline/boundary_value.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "comm/object_message.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

void append_number(std::string& text, int64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Whether all of the value has been appended.
bool append_outline(std::string& outline, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || tensor.layout() != at::kStrided) return false;
    outline.push_back(tensor.requires_grad() ? 'G' : 'T');
    outline.push_back(static_cast<char>(tensor.scalar_type()));
    append_number(outline, tensor.dim());
    for (const int64_t size : tensor.sizes()) append_number(outline, size);
    return true;
  }
  if (!tree::is_sequence(value)) return false;
  const auto items = tree::sequence_items(value);
  outline.push_back(value.isTuple() ? '(' : '[');
  append_number(outline, static_cast<int64_t>(items.size()));
  return std::all_of(items.begin(), items.end(),
                     [&outline](const c10::IValue& item) { return append_outline(outline, item); });
}

}  // namespace

std::string outline_of(const c10::IValue& value) {
  std::string outline;
  return append_outline(outline, value) ? outline : std::string();
}

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
