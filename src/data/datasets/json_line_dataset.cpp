// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/json_line_dataset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <vector>

#include "base/error.hpp"
#include "data/datasets/file_list.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

constexpr int64_t kMostDimensions = 16;  // lists that are nested more deeply stay lists

template <typename Number, typename Get>
at::Tensor numbers_of(c10::ArrayRef<c10::IValue> items, at::ScalarType dtype, Get get) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(items.size())}, dtype);
  auto* const out = tensor.mutable_data_ptr<Number>();
  for (size_t i = 0; i < items.size(); ++i) out[i] = get(items[i]);
  return tensor;
}

bool all(c10::ArrayRef<c10::IValue> items, bool (*is)(const c10::IValue&)) {
  for (const auto& item : items)
    if (!is(item)) return false;
  return true;
}

// Nothing when the items are not all numbers, or not all truths, or tensors of different kinds.
at::Tensor tensor_of(c10::ArrayRef<c10::IValue> items) {
  if (all(items, [](const c10::IValue& item) { return item.isInt(); }))
    return numbers_of<int64_t>(items, at::kLong, [](const c10::IValue& item) { return item.toInt(); });
  if (all(items, [](const c10::IValue& item) { return item.isInt() || item.isDouble(); }))
    return numbers_of<double>(items, at::kDouble, [](const c10::IValue& item) {
      return item.isInt() ? static_cast<double>(item.toInt()) : item.toDouble();
    });
  if (all(items, [](const c10::IValue& item) { return item.isBool(); }))
    return numbers_of<bool>(items, at::kBool, [](const c10::IValue& item) { return item.toBool(); });
  if (!all(items, [](const c10::IValue& item) { return item.isTensor(); })) return {};
  std::vector<at::Tensor> tensors;
  for (const auto& item : items) {
    tensors.push_back(item.toTensor());
    if (tensors.back().sizes() != tensors[0].sizes() || tensors[0].dim() == kMostDimensions) return {};
    if ((tensors.back().scalar_type() == at::kBool) != (tensors[0].scalar_type() == at::kBool)) return {};
  }
  bool has_fractions = false;
  for (const auto& tensor : tensors) has_fractions = has_fractions || tensor.scalar_type() == at::kDouble;
  if (has_fractions)
    for (auto& tensor : tensors) tensor = tensor.to(at::kDouble);
  return at::stack(tensors);
}

c10::IValue with_tensors(const c10::IValue& value) {
  if (value.isGenericDict()) {
    auto map = tree::new_map();
    for (const auto& entry : value.toGenericDict()) map.insert(entry.key(), with_tensors(entry.value()));
    return map;
  }
  if (!value.isList()) return value;
  auto list = tree::new_list();
  for (const auto& item : value.toListRef()) list.push_back(with_tensors(item));
  const at::Tensor tensor = tensor_of(tree::sequence_items(list));
  if (tensor.defined()) return tensor;
  return list;
}

}  // namespace

JsonLineDataset::JsonLineDataset(const std::string& path, const std::optional<std::string>& suffix,
                                 bool skips_malformed)
    : RowDataset(RowIndex(find_files(path, suffix, "JSON lines"), line_end, false)) {
  if (skips_malformed) skip_malformed();
}

c10::IValue JsonLineDataset::read_item(int64_t index) const {
  const std::string_view line = rows().row(index);
  try {
    return with_tensors(tree::from_json(std::string(line), "it"));
  } catch (const Error& error) {
    fail(Status::kCorrupt, rows().location(index), ": ", error.message(), "; expected one JSON document");
  }
}

}  // namespace accel::data
