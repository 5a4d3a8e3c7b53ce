// SPDX-License-Identifier: Apache-2.0
#include "state/split.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::state {
namespace {

int64_t length_of(const c10::IValue& input) {
  if (input.isTensor()) {
    require(input.toTensor().dim() > 0, Status::kInvalidArgument,
            "a tensor without dimensions cannot be split; expected at least one row dimension");
    return input.toTensor().size(0);
  }
  require(tree::is_sequence(input), Status::kTypeMismatch, "a value of kind ", tree::kind_name(input),
          " cannot be split; expected a list, a tuple, a tensor, or a map of them");
  return static_cast<int64_t>(tree::sequence_items(input).size());
}

struct Share {
  int64_t begin, end, padding;
};

Share share_of(int64_t length, int rank, int size, bool apply_padding) {
  const auto [begin, end] = split_range(length, rank, size);
  if (!apply_padding) return {begin, end, 0};
  require(length > 0, Status::kInvalidArgument, "the input is empty; padding needs a last element to repeat");
  const int64_t longest = (length + size - 1) / size;
  return {begin, end, longest - (end - begin)};
}

c10::IValue part_of(const c10::IValue& input, const Share& share) {
  if (input.isTensor()) {
    const at::Tensor& tensor = input.toTensor();
    const at::Tensor part = tensor.slice(0, share.begin, share.end);
    if (share.padding == 0) return part.clone();  // changing a share leaves the input as it is
    std::vector<int64_t> padding_shape = tensor.sizes().vec();
    padding_shape[0] = share.padding;
    return at::cat({part, tensor.slice(0, -1).expand(padding_shape)});
  }
  const auto items = tree::sequence_items(input);
  std::vector<c10::IValue> part = items.slice(share.begin, share.end - share.begin).vec();
  part.insert(part.end(), static_cast<size_t>(share.padding), items.empty() ? c10::IValue() : items.back());
  return tree::sequence_like(input, std::move(part));
}

}  // namespace

std::pair<int64_t, int64_t> split_range(int64_t length, int rank, int size) {
  require(length >= 0, Status::kInvalidArgument, "the length is ", length, "; expected 0 or more");
  const int64_t each = length / size, extra = length % size;
  const int64_t begin = rank * each + std::min<int64_t>(rank, extra);
  return {begin, begin + each + (rank < extra ? 1 : 0)};
}

c10::IValue split_between_processes(const c10::IValue& inputs, int rank, int size, bool apply_padding) {
  if (!inputs.isGenericDict()) return part_of(inputs, share_of(length_of(inputs), rank, size, apply_padding));
  const auto members = inputs.toGenericDict();
  int64_t length = -1;
  for (const auto& member : members) {
    const int64_t own = length_of(member.value());
    require(length == -1 || own == length, Status::kInvalidArgument, "the members of the map have ", length, " and ",
            own, " elements; all values in the map must have the same length");
    length = own;
  }
  c10::impl::GenericDict parts(members.keyType(), members.valueType());
  if (length == -1) return parts;
  const Share share = share_of(length, rank, size, apply_padding);
  for (const auto& member : members) parts.insert(member.key(), part_of(member.value(), share));
  return parts;
}

}  // namespace accel::state
