// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/boundary_value.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/object_message.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kLeastSplitBytes = 512;  // below which another message costs more than the bytes

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

at::ScalarType sent_dtype(const at::Tensor& tensor, BoundaryDtype smaller) {
  const bool is_larger =
      smaller && tensor.is_floating_point() && static_cast<size_t>(tensor.element_size()) > c10::elementSize(*smaller);
  return is_larger ? *smaller : tensor.scalar_type();
}

}  // namespace

std::string outline_of(const c10::IValue& value) {
  std::string outline;
  return append_outline(outline, value) ? outline : std::string();
}

BoundaryDtype read_boundary_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const tensor::Dtype* const found = tensor::find_dtype(name);
  const bool is_floating =
      found != nullptr && (found->type == at::kBFloat16 || found->type == at::kHalf || found->type == at::kFloat);
  require(is_floating, Status::kInvalidArgument, "boundary_dtype is '", name,
          "'; expected bfloat16, float16 or float32");
  return found->type;
}

at::Tensor sent_form(const at::Tensor& tensor, BoundaryDtype smaller) {
  return tensor.detach().to(sent_dtype(tensor, smaller)).contiguous();
}

int64_t sent_elements(int64_t elements, int64_t bytes, int64_t ranks) {
  return ranks > 1 && bytes >= kLeastSplitBytes && elements % ranks == 0 ? elements / ranks : elements;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  tree::for_each_tensor(value, [&tensors](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

std::string describe(const c10::IValue& value, BoundaryDtype smaller) {
  std::vector<c10::IValue> sizes, gradients, dtypes;
  const c10::IValue structure = tree::map_tensors(value, [&](const at::Tensor& tensor) {
    std::vector<c10::IValue> shape;
    for (const int64_t size : tensor.sizes()) shape.emplace_back(size);
    sizes.emplace_back(tree::new_list(std::move(shape)));
    gradients.emplace_back(tensor.requires_grad());
    dtypes.emplace_back(static_cast<int64_t>(sent_dtype(tensor, smaller)));
    return at::empty({0}, tensor.options().device(c10::kCPU));
  });
  return comm::encode_object(tree::new_list({structure, tree::new_list(std::move(sizes)),
                                             tree::new_list(std::move(gradients)), tree::new_list(std::move(dtypes))}));
}

ValueLayout::ValueLayout(std::string_view description, int64_t ranks) : ranks_(ranks) {
  const c10::IValue decoded = comm::decode_object(description);
  const auto parts = tree::sequence_items(decoded);
  structure_ = parts[0];
  for (const c10::IValue& shape : tree::sequence_items(parts[1])) {
    sizes_.emplace_back();
    for (const c10::IValue& size : tree::sequence_items(shape)) sizes_.back().push_back(size.toInt());
  }
  for (const c10::IValue& wanted : tree::sequence_items(parts[2])) wants_gradient_.push_back(wanted.toBool());
  for (const c10::IValue& dtype : tree::sequence_items(parts[3]))
    sent_dtypes_.push_back(static_cast<at::ScalarType>(dtype.toInt()));
  for (size_t index = 0; index < sizes_.size(); index++) {
    const auto bytes = static_cast<int64_t>(c10::elementSize(sent_dtypes_[index]));
    const int64_t elements = c10::multiply_integers(sizes_[index]);
    sent_bytes_.push_back(sent_elements(elements, elements * bytes, ranks) * bytes);
  }
}

std::vector<at::Tensor> ValueLayout::allocate(c10::Device device) const {
  std::vector<at::Tensor> tensors = allocate_whole(device);
  if (ranks_ == 1) return tensors;
  for (at::Tensor& tensor : tensors) {
    const int64_t elements = sent_elements(tensor.numel(), static_cast<int64_t>(tensor.nbytes()), ranks_);
    if (elements < tensor.numel()) tensor = at::empty({elements}, tensor.options());
  }
  return tensors;
}

std::vector<at::Tensor> ValueLayout::allocate_whole(c10::Device device) const {
  std::vector<at::Tensor> tensors;
  tree::for_each_tensor(structure_, [&](const at::Tensor& like) {
    const size_t index = tensors.size();
    tensors.push_back(at::empty(sizes_[index], like.options().device(device).dtype(sent_dtypes_[index])));
  });
  return tensors;
}

c10::IValue ValueLayout::value_of(const std::vector<at::Tensor>& tensors) const {
  size_t next = 0;
  return tree::map_tensors(structure_, [&](const at::Tensor& like) {
    const size_t index = next++;
    const at::Tensor tensor = tensors[index].to(like.scalar_type());
    return wants_gradient_[index] ? tensor.requires_grad_() : tensor;
  });
}

}  // namespace accel::parallel
