#include "data/collate.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

using Items = std::vector<c10::IValue>;

void check_kind(const Items& items, bool (c10::IValue::*is)() const) {
  for (size_t i = 1; i < items.size(); ++i)
    require((items[i].*is)(), Status::kTypeMismatch, "item ", i, " of the batch has a ", tree::kind_name(items[i]),
            " where item 0 has a ", tree::kind_name(items[0]), "; expected items of one structure");
}

std::vector<at::Tensor> tensors_of(const Items& items) {
  check_kind(items, &c10::IValue::isTensor);
  std::vector<at::Tensor> tensors;
  tensors.reserve(items.size());
  for (const auto& item : items) tensors.push_back(item.toTensor());
  for (size_t i = 1; i < tensors.size(); ++i) {
    require(tensors[i].scalar_type() == tensors[0].scalar_type(), Status::kTypeMismatch, "item ", i,
            " of the batch has dtype ", tensors[i].dtype().name(), "; expected ", tensors[0].dtype().name(),
            " as item 0");
    require(tensors[i].dim() == tensors[0].dim(), Status::kShapeMismatch, "item ", i, " of the batch has ",
            tensors[i].dim(), " dimensions; expected ", tensors[0].dim(), " as item 0");
  }
  return tensors;
}

at::Tensor stack(const Items& items) {
  const auto tensors = tensors_of(items);
  for (size_t i = 1; i < tensors.size(); ++i)
    require(tensors[i].sizes() == tensors[0].sizes(), Status::kShapeMismatch, "item ", i, " of the batch has shape ",
            tensors[i].sizes(), "; expected ", tensors[0].sizes(), " as item 0, or a loader that pads");
  return at::stack(tensors);
}

// The rows [rows, longest, ...] and what of them is no filling [rows, longest].
std::pair<at::Tensor, at::Tensor> pad(const std::vector<at::Tensor>& tensors, const Padding& padding) {
  const auto rows = static_cast<int64_t>(tensors.size());
  int64_t longest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    require(tensors[i].sizes().slice(1) == tensors[0].sizes().slice(1), Status::kShapeMismatch, "item ", i,
            " of the batch has shape ", tensors[i].sizes(), " and item 0 ", tensors[0].sizes(),
            "; expected shapes that differ in the first dimension only");
    longest = std::max(longest, tensors[i].size(0));
  }
  longest = (longest + padding.multiple_of - 1) / padding.multiple_of * padding.multiple_of;
  auto shape = tensors[0].sizes().vec();
  shape.insert(shape.begin(), rows);
  shape[1] = longest;
  at::Tensor batch = at::full(shape, padding.value, tensors[0].options().requires_grad(false));
  at::Tensor mask = padding.masks ? at::zeros({rows, longest}, batch.options().dtype(at::kBool)) : at::Tensor();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length = tensors[row].size(0);
    const int64_t begin = padding.at_start ? longest - length : 0;
    batch.select(0, row).narrow(0, begin, length).copy_(tensors[row]);
    if (padding.masks) mask.select(0, row).narrow(0, begin, length).fill_(true);
  }
  return {std::move(batch), std::move(mask)};
}

class Collator {
 public:
  explicit Collator(const Padding* padding) : padding_(padding) {}

  // The batch of the leaf, and its mask where it has one.
  std::pair<c10::IValue, at::Tensor> operator()(const Items& items) const {
    const c10::IValue& first = items.front();
    if (first.isTensor()) {
      if (padding_ == nullptr || first.toTensor().dim() == 0) return {stack(items), {}};
      return pad(tensors_of(items), *padding_);
    }
    if (first.isInt()) return {numbers<int64_t>(items, &c10::IValue::isInt, &c10::IValue::toInt, at::kLong), {}};
    if (first.isDouble())
      return {numbers<double>(items, &c10::IValue::isDouble, &c10::IValue::toDouble, at::kDouble), {}};
    if (first.isBool()) return {numbers<bool>(items, &c10::IValue::isBool, &c10::IValue::toBool, at::kBool), {}};
    if (first.isGenericDict()) return {map(items), {}};
    if (first.isList() || first.isTuple()) return {list(items), {}};
    auto leaves = tree::new_list();
    for (const auto& item : items) leaves.push_back(item);
    return {leaves, {}};
  }

 private:
  template <typename Number>
  static at::Tensor numbers(const Items& items, bool (c10::IValue::*is)() const, Number (c10::IValue::*get)() const,
                            at::ScalarType dtype) {
    check_kind(items, is);
    at::Tensor tensor = at::empty({static_cast<int64_t>(items.size())}, dtype);
    auto* const out = tensor.mutable_data_ptr<Number>();
    for (size_t i = 0; i < items.size(); ++i) out[i] = (items[i].*get)();
    return tensor;
  }

  c10::IValue map(const Items& items) const {
    check_kind(items, &c10::IValue::isGenericDict);
    auto batch = tree::new_map();
    for (const auto& entry : items.front().toGenericDict()) {
      Items column;
      column.reserve(items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        const auto dict = items[i].toGenericDict();
        const auto found = dict.find(entry.key());
        require(found != dict.end(), Status::kTypeMismatch, "item ", i, " of the batch lacks the key ", entry.key(),
                "; expected the keys of item 0");
        column.push_back(found->value());
      }
      auto [values, mask] = (*this)(column);
      batch.insert(entry.key(), values);
      if (mask.defined()) batch.insert(entry.key().toStringRef() + "_mask", mask);
    }
    return batch;
  }

  c10::IValue list(const Items& items) const {
    const size_t length = tree::sequence_items(items.front()).size();
    for (size_t i = 0; i < items.size(); ++i) {
      const bool sequence = items[i].isList() || items[i].isTuple();
      require(sequence && tree::sequence_items(items[i]).size() == length, Status::kTypeMismatch, "item ", i,
              " of the batch is not a list of ", length, " entries; expected items of one structure");
    }
    auto batch = tree::new_list();
    for (size_t position = 0; position < length; ++position) {
      Items column;
      column.reserve(items.size());
      for (const auto& item : items) column.push_back(tree::sequence_items(item)[position]);
      auto [values, mask] = (*this)(column);
      batch.push_back(values);
      if (mask.defined()) batch.push_back(mask);
    }
    return batch;
  }

  const Padding* padding_;
};

}  // namespace

c10::IValue collate(const Collation& collation, std::vector<c10::IValue> items) {
  if (collation.kind == Collation::Kind::kCallback) return collation.callback(std::move(items));
  require(!items.empty(), Status::kInvalidArgument, "a batch of 0 items has no structure; expected at least one item");
  const Collator collator(collation.kind == Collation::Kind::kPad ? &collation.padding : nullptr);
  auto [batch, mask] = collator(items);
  if (!mask.defined()) return batch;
  auto both = tree::new_list();
  both.push_back(batch);
  both.push_back(mask);
  return both;
}

}  // namespace accel::data
