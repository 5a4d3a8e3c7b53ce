// SPDX-License-Identifier: Apache-2.0
#include "nn/initial_values.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/module_walks.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::nn {
namespace {

std::atomic<uint64_t> fillings{0};

// LibTorch keeps it with the tensor, and drops it with the data that the tensor has.
struct RememberedFilling final : c10::BackendMeta {
  RememberedFilling(const Filling& filling, at::ScalarType dtype, uint64_t number)
      : filling(filling), dtype(dtype), number(number) {}

  const Filling filling;
  const at::ScalarType dtype;    // in which the values are drawn
  const uint64_t number;         // in the order of all
  std::optional<double> behind;  // a value that the tensor got after numbers were drawn for it
};

const RememberedFilling* remembered(const at::Tensor& tensor) {
  return dynamic_cast<const RememberedFilling*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

void fill_now(const at::Tensor& tensor, const Filling& filling, std::optional<at::Generator> generator) {
  const at::NoGradGuard no_grad;
  switch (filling.kind) {
    case Filling::Kind::kConstant:
      tensor.fill_(filling.first);
      return;
    case Filling::Kind::kUniform:
      tensor.uniform_(filling.first, filling.second, std::move(generator));
      return;
    case Filling::Kind::kNormal:
      tensor.normal_(filling.first, filling.second, std::move(generator));
      return;
  }
}

// Draws the numbers that a tensor of another rank gets, and drops them. LibTorch draws 16 at once, and the last 16
// again where their number is no multiple: so do two fillings one behind the other, of which the first is a multiple.
void pass_over(const RememberedFilling& values, int64_t elements, const at::Generator& generator) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  if (values.filling.kind == Filling::Kind::kConstant) return;
  while (elements > 0) {
    const int64_t drawn = elements < 2 * kChunk ? elements : kChunk;
    fill_now(at::empty({drawn}, at::TensorOptions().dtype(values.dtype)), values.filling, generator);
    elements -= drawn;
  }
}

}  // namespace

void set_initial_values(const at::Tensor& tensor, const Filling& filling) {
  if (!tensor.is_meta()) return fill_now(tensor, filling, std::nullopt);
  const RememberedFilling* const former = remembered(tensor);
  const bool is_behind = former != nullptr && filling.kind == Filling::Kind::kConstant;
  auto values = is_behind
                    ? c10::make_intrusive<RememberedFilling>(former->filling, former->dtype, former->number)
                    : c10::make_intrusive<RememberedFilling>(filling, tensor.scalar_type(), fillings.fetch_add(1));
  if (is_behind) values->behind = filling.first;
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(values));
}

void remember_filling_of(const at::Tensor& tensor, const at::Tensor& other) {
  if (!tensor.is_meta() || remembered(other) == nullptr) return;
  tensor.unsafeGetTensorImpl()->set_backend_meta(other.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
}

bool lacks_memory(const Module& module) {
  const auto is_empty = [](const NamedTensor& entry) { return entry.second.is_meta(); };
  const NamedTensors parameters = named_parameters(module), buffers = named_buffers(module);
  return std::any_of(parameters.begin(), parameters.end(), is_empty) ||
         std::any_of(buffers.begin(), buffers.end(), is_empty);
}

void draw_initial_values(Module& module, const at::Generator& generator, const NamedTensors& whole) {
  const at::NoGradGuard no_grad;
  NamedTensors empty;
  std::unordered_set<const at::TensorImpl*> own;
  for (const NamedTensors& tensors : {named_parameters(module), named_buffers(module)})
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.is_meta()) continue;
      require(remembered(tensor) != nullptr, Status::kInvalidState, "'", name,
              "' has no memory, and no layer of the library says its initial values; expected weights that are loaded "
              "ahead");
      empty.emplace_back(name, tensor);
      own.insert(tensor.unsafeGetTensorImpl());
    }
  std::unordered_set<const at::TensorImpl*> others;
  for (const auto& [name, tensor] : whole)
    if (tensor.is_meta() && remembered(tensor) != nullptr && own.count(tensor.unsafeGetTensorImpl()) == 0 &&
        others.insert(tensor.unsafeGetTensorImpl()).second)
      empty.emplace_back(name, tensor);
  std::sort(empty.begin(), empty.end(), [](const NamedTensor& one, const NamedTensor& other) {
    return remembered(one.second)->number < remembered(other.second)->number;
  });
  const Placements placed = placements(module);
  for (const auto& [name, tensor] : empty) {
    const RememberedFilling& values = *remembered(tensor);
    if (others.count(tensor.unsafeGetTensorImpl()) > 0) {
      pass_over(values, tensor.numel(), generator);
      continue;
    }
    const tensor::PlacementPtr placement = placed.find(tensor);
    const at::ScalarType dtype = tensor.scalar_type();
    at::Tensor drawn = at::empty(placement == nullptr ? tensor.sizes() : at::IntArrayRef(placement->shape),
                                 at::TensorOptions().dtype(values.dtype));
    fill_now(drawn, values.filling, generator);
    if (values.behind) drawn.fill_(*values.behind);
    if (placement != nullptr) drawn = tensor::read_part(drawn, *placement, name).clone(at::MemoryFormat::Contiguous);
    tensor::set_data(tensor, drawn.to(dtype));
  }
}

}  // namespace accel::nn
