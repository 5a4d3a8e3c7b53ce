// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/torch_tensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.hpp"
#include "checkpoint/formats/torch/pickle_arguments.hpp"
#include "tensor/dtype_value.hpp"

namespace accel::checkpoint {
namespace {

struct StorageType {
  const char* name;
  at::ScalarType dtype;
};

constexpr StorageType kStorageTypes[] = {
    {"torch.DoubleStorage", at::kDouble},
    {"torch.FloatStorage", at::kFloat},
    {"torch.HalfStorage", at::kHalf},
    {"torch.BFloat16Storage", at::kBFloat16},
    {"torch.LongStorage", at::kLong},
    {"torch.IntStorage", at::kInt},
    {"torch.ShortStorage", at::kShort},
    {"torch.CharStorage", at::kChar},
    {"torch.ByteStorage", at::kByte},
    {"torch.BoolStorage", at::kBool},
    {"torch.ComplexFloatStorage", at::kComplexFloat},
    {"torch.ComplexDoubleStorage", at::kComplexDouble},
    {"torch.storage.UntypedStorage", at::kByte},
    {"torch.UntypedStorage", at::kByte},
};

constexpr const char* kRebuildV1 = "torch._utils._rebuild_tensor";
constexpr const char* kRebuildV3 = "torch._utils._rebuild_tensor_v3";

// Refuses a view that reaches beyond its storage.
void check_view(int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                int64_t elements) {
  require(sizes.size() == strides.size(), Status::kCorrupt, "a tensor has ", sizes.size(), " dimensions and ",
          strides.size(), " strides");
  int64_t last = offset, count = 1;
  bool overflows = offset < 0;
  const bool is_empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  for (size_t i = 0; i < sizes.size(); i++) {
    require(sizes[i] >= 0 && strides[i] >= 0, Status::kCorrupt, "a tensor has the size ", sizes[i], " and the stride ",
            strides[i], "; expected at least 0");
    if (is_empty) continue;
    int64_t reach = 0;
    overflows |= __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
                 __builtin_add_overflow(last, reach, &last) || __builtin_mul_overflow(count, sizes[i], &count);
  }
  constexpr int64_t kMostElements = int64_t{1} << 58;  // their bytes fit 64 bits
  require(!overflows && count <= kMostElements && (is_empty ? offset <= elements : last < elements), Status::kCorrupt,
          "a tensor of sizes ", at::IntArrayRef(sizes), ", strides ", at::IntArrayRef(strides), " at element ", offset,
          " lies outside of its storage of ", elements, " elements");
}

// Bits that a tensor has beside its elements: {"conj": True, "neg": True}.
at::Tensor with_metadata(at::Tensor tensor, const PickleNode& node) {
  if (node.is_none()) return tensor;
  const auto* const map = std::get_if<PickledMap>(&node.content);
  require(map != nullptr, Status::kCorrupt, "the metadata of a tensor is a ", kind_of(node), "; expected a map");
  for (const auto& [key, value] : map->members) {
    require(key->text() != nullptr && (*key->text() == "conj" || *key->text() == "neg"), Status::kUnsupported,
            "a tensor has metadata that is not known; expected conj and neg");
    if (!value->is_true()) continue;
    require(*key->text() == "neg" || tensor.is_complex(), Status::kCorrupt, "a ", tensor.scalar_type(),
            " tensor is marked as conjugate; expected a complex one");
    tensor = *key->text() == "neg" ? tensor._neg_view() : tensor.conj();
  }
  return tensor;
}

}  // namespace

std::optional<at::ScalarType> storage_dtype(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                                         [&](const StorageType& type) { return name == type.name; });
  return found == std::end(kStorageTypes) ? std::nullopt : std::optional(found->dtype);
}

const char* storage_type_name(at::ScalarType dtype) {
  const auto* const found = std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                                         [&](const StorageType& type) { return dtype == type.dtype; });
  return found == std::end(kStorageTypes) ? nullptr : found->name + std::strlen("torch.");
}

at::Tensor make_tensor(const std::string& name, const PickleItems& arguments) {
  const auto argument = [&](size_t index) -> const PickleNode& { return pickled_argument(name, arguments, index); };
  const auto* const given = std::get_if<PickledStorage>(&argument(0).content);
  require(given != nullptr, Status::kCorrupt, "the first argument of ", name, " is a ", kind_of(argument(0)),
          "; expected a storage");
  const int64_t offset = pickled_integer(argument(1), "the offset of a tensor");
  const std::vector<int64_t> sizes = pickled_integers(argument(2), "the sizes of a tensor");
  const std::vector<int64_t> strides = pickled_integers(argument(3), "the strides of a tensor");
  const bool is_v3 = name == kRebuildV3;
  at::ScalarType dtype = given->dtype;
  if (is_v3) {
    const c10::IValue* const value = argument(6).value();
    const auto named = value == nullptr ? std::nullopt : tree::dtype_of(*value);
    require(named.has_value() && dtype == at::kByte, Status::kCorrupt, "the dtype of a tensor is a ",
            kind_of(argument(6)), ", and its storage is of ", dtype, "; expected a dtype and a storage without a type");
    dtype = *named;
  }
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  check_view(offset, sizes, strides, static_cast<int64_t>(given->storage.nbytes()) / element);
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(dtype));
  tensor.set_(given->storage, offset, sizes, strides);
  const size_t metadata = is_v3 ? 7 : 6;
  if (arguments.size() > metadata) tensor = with_metadata(tensor, argument(metadata));
  const bool requires_grad = name != kRebuildV1 && argument(4).is_true();
  if (requires_grad && (tensor.is_floating_point() || tensor.is_complex())) tensor.set_requires_grad(true);
  return tensor;
}

}  // namespace accel::checkpoint
