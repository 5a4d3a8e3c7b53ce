// SPDX-License-Identifier: Apache-2.0
#include "data/collate.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "data/item_structure.hpp"
#include "tensor/device/page_locked.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

using Items = std::vector<c10::IValue>;

class Collator {
 public:
  Collator(const Collation& collation, c10::IntArrayRef indices)
      : collation_(collation), padding_(collation.row_padding()), indices_(indices) {}

  // The batch of the leaf, and its mask where it has one.
  Part operator()(const Items& items) const {
    const c10::IValue& first = items.front();
    if (first.isTensor()) {
      const auto tensors = tensors_of(items);
      if (padding_ == nullptr || first.toTensor().dim() == 0) return {stack(tensors), {}};
      return pad(tensors);
    }
    if (first.isDouble()) return {numbers<double>(items, is_number, at::kDouble), {}};
    if (first.isInt()) {
      const bool whole = std::all_of(items.begin(), items.end(), [](const auto& item) { return !item.isDouble(); });
      // Torch does the same: an integer at the front makes a float batch one of the default dtype.
      return {whole ? numbers<int64_t>(items, is_integer, at::kLong) : numbers<float>(items, is_number, at::kFloat),
              {}};
    }
    if (first.isBool()) return {numbers<bool>(items, is_bool, at::kBool), {}};
    if (first.isGenericDict()) return {map(items), {}};
    if (tree::is_sequence(first)) return {list(items), {}};
    if (first.isString()) check_kind(items, is_string);
    auto leaves = tree::new_list();
    leaves.reserve(items.size());
    for (const auto& item : items) leaves.push_back(item);
    return {leaves, {}};
  }

 private:
  // "item 3 of the batch (index 117)"
  std::string name_of(size_t item) const {
    if (item >= indices_.size()) return text("item ", item, " of the batch");
    return text("item ", item, " of the batch (index ", indices_[item], ")");
  }

  using IsKind = bool (*)(const c10::IValue& item);
  static bool is_bool(const c10::IValue& item) { return item.isBool(); }
  static bool is_integer(const c10::IValue& item) { return item.isInt(); }
  static bool is_number(const c10::IValue& item) { return item.isInt() || item.isDouble(); }
  static bool is_tensor(const c10::IValue& item) { return item.isTensor(); }
  static bool is_string(const c10::IValue& item) { return item.isString(); }
  static bool is_map(const c10::IValue& item) { return item.isGenericDict(); }

  void check_kind(const Items& items, IsKind is) const {
    for (size_t i = 1; i < items.size(); ++i)
      if (!is(items[i]))
        fail(Status::kTypeMismatch, name_of(i), " has a ", tree::kind_name(items[i]), " where item 0 has a ",
             tree::kind_name(items[0]), "; expected items of one structure");
  }

  std::vector<at::Tensor> tensors_of(const Items& items) const {
    check_kind(items, is_tensor);
    std::vector<at::Tensor> tensors;
    tensors.reserve(items.size());
    for (const auto& item : items) tensors.push_back(item.toTensor());
    for (size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i].scalar_type() != tensors[0].scalar_type())
        fail(Status::kTypeMismatch, name_of(i), " has dtype ", tensors[i].dtype().name(), "; expected ",
             tensors[0].dtype().name(), " as item 0");
      if (tensors[i].dim() != tensors[0].dim())
        fail(Status::kShapeMismatch, name_of(i), " has ", tensors[i].dim(), " dimensions; expected ", tensors[0].dim(),
             " as item 0");
      if (tensors[i].device() != tensors[0].device())
        fail(Status::kTypeMismatch, name_of(i), " is on ", tensors[i].device(), "; expected ", tensors[0].device(),
             " as item 0");
    }
    return tensors;
  }

  at::Tensor stack(const std::vector<at::Tensor>& tensors) const {
    for (size_t i = 1; i < tensors.size(); ++i)
      if (tensors[i].sizes() != tensors[0].sizes())
        fail(Status::kShapeMismatch, name_of(i), " has shape ", tensors[i].sizes(), "; expected ", tensors[0].sizes(),
             " as item 0, or a loader that pads");
    if (!collation_.page_locked || !tensors[0].is_cpu()) return at::stack(tensors);
    std::vector<int64_t> shape{static_cast<int64_t>(tensors.size())};
    shape.insert(shape.end(), tensors[0].sizes().begin(), tensors[0].sizes().end());
    at::Tensor batch = tensor::empty_on_host(shape, collation_.batch_options(tensors[0].options()));
    const at::NoGradGuard without_graph;
    return at::stack_out(batch, tensors);
  }

  Part pad(const std::vector<at::Tensor>& tensors) const {
    std::vector<int64_t> lengths;
    lengths.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].sizes().slice(1) != tensors[0].sizes().slice(1))
        fail(Status::kShapeMismatch, name_of(i), " has shape ", tensors[i].sizes(), " and item 0 ", tensors[0].sizes(),
             "; expected shapes that differ in the first dimension only");
      lengths.push_back(tensors[i].size(0));
    }
    const PaddedRows rows(lengths, tensors[0].sizes().slice(1), collation_.batch_options(tensors[0].options()),
                          *padding_);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].device().is_cpu() && tensors[i].is_contiguous() && !tensors[i].is_conj() && !tensors[i].is_neg()) {
        if (tensors[i].numel() > 0) std::memcpy(rows.row_data(i), tensors[i].const_data_ptr(), tensors[i].nbytes());
      } else {
        rows.row(i).copy_(tensors[i].detach());
      }
    }
    return {rows.values(), rows.mask()};
  }

  template <typename Number>
  static Number number_of(const c10::IValue& item) {
    if (item.isBool()) return static_cast<Number>(item.toBool());
    return item.isInt() ? static_cast<Number>(item.toInt()) : static_cast<Number>(item.toDouble());
  }

  template <typename Number>
  at::Tensor numbers(const Items& items, IsKind is, at::ScalarType dtype) const {
    check_kind(items, is);
    at::Tensor tensor = tensor::empty_on_host({static_cast<int64_t>(items.size())}, collation_.batch_options(dtype));
    auto* const out = tensor.mutable_data_ptr<Number>();
    for (size_t i = 0; i < items.size(); ++i) out[i] = number_of<Number>(items[i]);
    return tensor;
  }

  c10::IValue map(const Items& items) const {
    check_kind(items, is_map);
    const auto first = items.front().toGenericDict();
    for (size_t i = 1; i < items.size(); ++i)
      if (items[i].toGenericDict().size() > first.size())
        fail(Status::kTypeMismatch, name_of(i), " has ", items[i].toGenericDict().size(), " keys; expected the ",
             first.size(), " keys of item 0");
    ItemBuilder batch(true);
    for (const auto& entry : first) {
      Items column;
      column.reserve(items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        const auto dict = items[i].toGenericDict();
        const auto found = dict.find(entry.key());
        if (found == dict.end())
          fail(Status::kTypeMismatch, name_of(i), " lacks the key ", entry.key(), "; expected the keys of item 0");
        column.push_back(found->value());
      }
      batch.add(entry.key(), (*this)(column));
    }
    return batch.take();
  }

  c10::IValue list(const Items& items) const {
    const size_t length = tree::sequence_items(items.front()).size();
    for (size_t i = 0; i < items.size(); ++i) {
      if (!tree::is_sequence(items[i]) || tree::sequence_items(items[i]).size() != length)
        fail(Status::kTypeMismatch, name_of(i), " is not a list of ", length,
             " entries; expected items of one structure");
    }
    ItemBuilder batch(false);
    for (size_t position = 0; position < length; ++position) {
      Items column;
      column.reserve(items.size());
      for (const auto& item : items) column.push_back(tree::sequence_items(item)[position]);
      batch.add({}, (*this)(column));
    }
    return batch.take();
  }

  const Collation& collation_;
  const Padding* padding_;
  c10::IntArrayRef indices_;
};

}  // namespace

c10::IValue collate(const Collation& collation, std::vector<c10::IValue> items, c10::IntArrayRef indices) {
  if (collation.kind == Collation::Kind::kCallback) return collation.callback(std::move(items));
  require(!items.empty(), Status::kInvalidArgument, "a batch of 0 items has no structure; expected at least one item");
  return alone(Collator(collation, indices)(items));
}

}  // namespace accel::data
