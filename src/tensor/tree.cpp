// SPDX-License-Identifier: Apache-2.0
#include "tensor/tree.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype_value.hpp"

namespace accel::tree {
namespace {

using SkipKey = std::function<bool(const std::string&)>;

void check_depth(int depth) {
  require(depth <= kDeepest, Status::kInvalidArgument, "a value is nested more than ", kDeepest, " levels deep");
}

bool is_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

void visit_leaves(const c10::IValue& value, const std::function<void(const c10::IValue&)>& visit, int depth) {
  check_depth(depth);
  if (is_sequence(value)) {
    for (const c10::IValue& item : sequence_items(value)) visit_leaves(item, visit, depth + 1);
  } else if (value.isGenericDict()) {
    for (const auto& member : value.toGenericDict()) visit_leaves(member.value(), visit, depth + 1);
  } else {
    visit(value);
  }
}

c10::IValue map_leaves(const c10::IValue& value, const LeafFunction& function, const SkipKey& skip, int depth = 0) {
  check_depth(depth);
  if (is_sequence(value)) {
    const c10::ArrayRef<c10::IValue> items = sequence_items(value);
    std::vector<c10::IValue> mapped;
    mapped.reserve(items.size());
    for (const c10::IValue& item : items) mapped.push_back(map_leaves(item, function, skip, depth + 1));
    return sequence_like(value, std::move(mapped));
  }
  if (value.isGenericDict()) {
    const c10::impl::GenericDict members = value.toGenericDict();
    c10::impl::GenericDict mapped(members.keyType(), c10::AnyType::get());
    mapped.reserve(members.size());
    for (const auto& member : members) {
      const bool stays = skip && member.key().isString() && skip(member.key().toStringRef());
      mapped.insert(member.key(), stays ? member.value() : map_leaves(member.value(), function, skip, depth + 1));
    }
    return mapped;
  }
  return function(value);
}

c10::IValue map_tensor_leaves(const c10::IValue& value, const LeafFunction& function, const SkipKey& skip = nullptr) {
  return map_leaves(
      value, [&](const c10::IValue& leaf) { return is_tensor(leaf) ? function(leaf) : leaf; }, skip);
}

[[noreturn]] void refuse_leaf(const c10::IValue& leaf) {
  fail(Status::kTypeMismatch, "a leaf of the value is of kind ", kind_name(leaf), "; expected tensors only");
}

// Rows of a contiguous tensor whose elements are `Element`, as lists of `Number`.
template <typename Number, typename Element>
c10::IValue nested_list(const Element*& next, c10::IntArrayRef shape) {
  if (shape.empty()) return static_cast<Number>(*next++);
  c10::List<c10::IValue> items = new_list();
  items.reserve(shape[0]);
  for (int64_t i = 0; i < shape[0]; i++) items.push_back(nested_list<Number>(next, shape.slice(1)));
  return items;
}

template <typename Number, typename Element = Number>
c10::IValue nested_list_of(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor elements = tensor.to(type).contiguous();
  const auto* next = elements.const_data_ptr<Element>();
  return nested_list<Number>(next, elements.sizes());
}

c10::IValue list_of_numbers(const at::Tensor& given) {
  const at::ScalarType type = given.scalar_type();
  require(given.device().type() != at::kMeta, Status::kTypeMismatch, "a tensor on meta has no elements to list");
  require(given.layout() == at::kStrided && !given.is_quantized() && !at::isComplexType(type), Status::kTypeMismatch,
          "a ", type, " tensor cannot become a list of numbers; expected bools, integers or floating numbers");
  const at::Tensor tensor = given.detach().cpu();
  if (type == at::kBool) return nested_list_of<bool>(tensor, type);
  if (!at::isIntegralType(type, /*includeBool=*/false)) return nested_list_of<double>(tensor, at::kDouble);
  if (type != at::kUInt64) return nested_list_of<int64_t>(tensor, at::kLong);
  const at::Tensor elements = tensor.contiguous();
  const auto* first = elements.const_data_ptr<uint64_t>();
  const auto too_large = std::find_if(first, first + elements.numel(), [](uint64_t element) {
    return element > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  });
  require(too_large == first + elements.numel(), Status::kTypeMismatch,
          "a uint64 tensor has an element above 2^63 - 1; expected int64");
  return nested_list_of<int64_t, uint64_t>(elements, type);
}

at::Tensor join_tensors(const std::vector<c10::IValue>& items, int64_t dim) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& item : items) tensors.push_back(item.toTensor());
  const at::Tensor& first = tensors[0];
  require(first.dim() > 0, Status::kShapeMismatch,
          "a tensor without dimensions cannot be joined; expected at least one dimension");
  require(dim >= -first.dim() && dim < first.dim(), Status::kInvalidArgument, "dim is ", dim, "; expected ",
          -first.dim(), " to ", first.dim() - 1);
  const int64_t axis = dim < 0 ? dim + first.dim() : dim;
  for (const at::Tensor& tensor : tensors) {
    bool fits = tensor.dim() == first.dim();
    for (int64_t i = 0; fits && i < first.dim(); i++) fits = i == axis || tensor.size(i) == first.size(i);
    require(fits, Status::kShapeMismatch, "tensors of shapes ", first.sizes(), " and ", tensor.sizes(),
            " cannot be joined along dimension ", dim, "; expected the same size in every other one");
  }
  return at::cat(tensors, axis);
}

c10::IValue join_trees(const std::vector<c10::IValue>& trees, int64_t dim, int depth);

c10::IValue join_sequences(const std::vector<c10::IValue>& sequences, int64_t dim, int depth) {
  const size_t length = sequence_items(sequences[0]).size();
  for (const c10::IValue& sequence : sequences)
    require(sequence_items(sequence).size() == length, Status::kTypeMismatch, "a list of ", length,
            " items and one of ", sequence_items(sequence).size(),
            " cannot be joined; expected trees of one structure");
  std::vector<c10::IValue> joined;
  for (size_t i = 0; i < length; i++) {
    std::vector<c10::IValue> column;
    for (const c10::IValue& sequence : sequences) column.push_back(sequence_items(sequence)[i]);
    joined.push_back(join_trees(column, dim, depth + 1));
  }
  return sequence_like(sequences[0], std::move(joined));
}

c10::IValue join_maps(const std::vector<c10::IValue>& maps, int64_t dim, int depth) {
  const c10::impl::GenericDict first = maps[0].toGenericDict();
  c10::impl::GenericDict joined(first.keyType(), c10::AnyType::get());
  for (const auto& member : first) {
    std::vector<c10::IValue> column;
    for (const c10::IValue& map : maps) {
      const c10::impl::GenericDict members = map.toGenericDict();
      const auto found = members.find(member.key());
      require(found != members.end() && members.size() == first.size(), Status::kTypeMismatch,
              "maps with different keys cannot be joined; expected trees of one structure, with the key ",
              member.key());
      column.push_back(found->value());
    }
    joined.insert(member.key(), join_trees(column, dim, depth + 1));
  }
  return joined;
}

c10::IValue join_trees(const std::vector<c10::IValue>& trees, int64_t dim, int depth) {
  check_depth(depth);
  const c10::IValue& first = trees[0];
  for (const c10::IValue& other : trees)
    require(kind_name(other) == kind_name(first), Status::kTypeMismatch, "a ", kind_name(first), " and a ",
            kind_name(other), " cannot be joined; expected trees of one structure");
  if (is_sequence(first)) return join_sequences(trees, dim, depth);
  if (first.isGenericDict()) return join_maps(trees, dim, depth);
  if (!is_tensor(first)) refuse_leaf(first);
  return join_tensors(trees, dim);
}

c10::IValue first_leaf(const c10::IValue& value, int depth) {
  check_depth(depth);
  if (!is_sequence(value) && !value.isGenericDict()) return value;
  const size_t size = is_sequence(value) ? sequence_items(value).size() : value.toGenericDict().size();
  require(size > 0, Status::kInvalidArgument, "the first item of the value is an empty ", kind_name(value),
          "; expected a tensor");
  return first_leaf(is_sequence(value) ? sequence_items(value)[0] : value.toGenericDict().begin()->value(), depth + 1);
}

bool equal_tensors(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(a, b.to(a.device()));
}

bool equal_at(const c10::IValue& a, const c10::IValue& b, int depth) {
  check_depth(depth);
  if (a.isTensor() && b.isTensor()) return equal_tensors(a.toTensor(), b.toTensor());
  if (is_sequence(a) && is_sequence(b) && a.isTuple() == b.isTuple()) {
    const c10::ArrayRef<c10::IValue> left = sequence_items(a), right = sequence_items(b);
    return std::equal(
        left.begin(), left.end(), right.begin(), right.end(),
        [&](const c10::IValue& one, const c10::IValue& other) { return equal_at(one, other, depth + 1); });
  }
  if (a.isGenericDict() && b.isGenericDict()) {
    const c10::impl::GenericDict left = a.toGenericDict(), right = b.toGenericDict();
    return left.size() == right.size() && std::all_of(left.begin(), left.end(), [&](const auto& member) {
             const auto found = right.find(member.key());
             return found != right.end() && equal_at(member.value(), found->value(), depth + 1);
           });
  }
  if (const Bytes* const left = bytes_of(a)) {
    const Bytes* const right = bytes_of(b);
    return right != nullptr && left->data == right->data && left->type == right->type;
  }
  if (const auto left = dtype_of(a)) return left == dtype_of(b);
  if (a.isNone()) return b.isNone();
  if (a.isBool()) return b.isBool() && a.toBool() == b.toBool();
  if (a.isInt()) return b.isInt() && a.toInt() == b.toInt();
  if (a.isDouble()) return b.isDouble() && a.toDouble() == b.toDouble();
  if (a.isString()) return b.isString() && a.toStringRef() == b.toStringRef();
  return a.isDevice() && b.isDevice() && a.toDevice() == b.toDevice();
}

}  // namespace

bool is_sequence(const c10::IValue& value) { return value.isList() || value.isTuple(); }

c10::ArrayRef<c10::IValue> sequence_items(const c10::IValue& sequence) {
  if (sequence.isTuple()) return sequence.toTupleRef().elements();
  return sequence.toListRef();
}

void for_each_leaf(const c10::IValue& value, const std::function<void(const c10::IValue&)>& visit) {
  visit_leaves(value, visit, 0);
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  for_each_leaf(value, [&](const c10::IValue& leaf) {
    if (is_tensor(leaf)) visit(leaf.toTensor());
  });
}

c10::IValue map_tensors(const c10::IValue& value, const TensorFunction& function) {
  return map_tensor_leaves(value, [&](const c10::IValue& leaf) { return function(leaf.toTensor()); });
}

c10::IValue map_tensors_only(const c10::IValue& value, const TensorFunction& function) {
  // Checks the whole tree first: a collective must not begin on a tree that it cannot process.
  for_each_leaf(value, [](const c10::IValue& leaf) {
    if (!is_tensor(leaf)) refuse_leaf(leaf);
  });
  return map_tensors(value, function);
}

c10::IValue concatenate(const c10::IValue& items, int64_t dim) {
  require(is_sequence(items), Status::kTypeMismatch, "items is a ", kind_name(items), "; expected a list of trees");
  const std::vector<c10::IValue> trees = sequence_items(items).vec();
  require(!trees.empty(), Status::kInvalidArgument, "items is empty; expected at least one tree");
  return trees.size() == 1 ? trees[0] : join_trees(trees, dim, 0);
}

c10::IValue slice(const c10::IValue& value, int64_t begin, int64_t end) {
  return map_tensors(value, [&](const at::Tensor& tensor) {
    require(tensor.dim() > 0, Status::kShapeMismatch, "a tensor without dimensions has no rows to slice");
    return tensor.slice(0, begin, end);
  });
}

c10::IValue pad_to_multiple(const c10::IValue& value, int64_t divisor, int64_t dim) {
  require(divisor >= 1, Status::kInvalidArgument, "num_processes is ", divisor, "; expected at least 1");
  return map_tensors(value, [&](const at::Tensor& tensor) {
    const int64_t ndim = tensor.dim(), axis = dim < 0 ? dim + ndim : dim;
    require(axis >= 0 && axis < ndim, Status::kShapeMismatch, "dim is ", dim, " and a tensor has ", ndim,
            " dimensions; expected one that every tensor has");
    const int64_t rest = tensor.size(axis) % divisor;
    if (rest == 0) return tensor;
    std::vector<int64_t> padding(static_cast<size_t>(2 * (ndim - axis)), 0);  // from the last dimension on
    padding.back() = divisor - rest;
    return at::constant_pad_nd(tensor, padding);
  });
}

c10::IValue send_to_device(const c10::IValue& value, c10::Device device, bool non_blocking,
                           const std::vector<std::string>& skip_keys) {
  const auto skip = [&](const std::string& key) {
    return std::find(skip_keys.begin(), skip_keys.end(), key) != skip_keys.end();
  };
  return map_tensor_leaves(
      value, [&](const c10::IValue& leaf) { return leaf.toTensor().to(device, non_blocking); }, skip);
}

c10::IValue convert_to_fp32(const c10::IValue& value) {
  return map_tensors(value, [](const at::Tensor& tensor) {
    const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
    return half ? tensor.to(at::kFloat) : tensor;
  });
}

c10::IValue listify(const c10::IValue& value) {
  return map_tensor_leaves(value, [](const c10::IValue& leaf) { return list_of_numbers(leaf.toTensor()); });
}

int64_t find_batch_size(const c10::IValue& value) {
  const c10::IValue leaf = first_leaf(value, 0);
  require(is_tensor(leaf), Status::kTypeMismatch, "the first leaf of the value is of kind ", kind_name(leaf),
          "; expected a tensor");
  require(leaf.toTensor().dim() > 0, Status::kShapeMismatch, "the first tensor has no dimensions; expected rows");
  return leaf.toTensor().size(0);
}

std::optional<c10::Device> find_device(const c10::IValue& value) {
  std::optional<c10::Device> first;
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (!first) first = tensor.device();
  });
  return first;
}

c10::IValue shapes(const c10::IValue& value) {
  return map_leaves(value, [](const c10::IValue& leaf) -> c10::IValue {
    if (!is_tensor(leaf)) refuse_leaf(leaf);
    auto sizes = new_list();
    for (const int64_t size : leaf.toTensor().sizes()) sizes.push_back(size);
    return sizes;
  });
}

c10::IValue empty_tensors(const c10::IValue& value, c10::Device device) {
  return map_tensors_only(
      value, [device](const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options().device(device)); });
}

bool equal(const c10::IValue& a, const c10::IValue& b) { return equal_at(a, b, 0); }

c10::IValue map_leaves(const c10::IValue& value, const LeafFunction& function) {
  return map_leaves(value, function, nullptr);
}

c10::List<c10::IValue> new_list() { return c10::List<c10::IValue>(c10::AnyType::get()); }

c10::List<c10::IValue> new_list(std::vector<c10::IValue> items) {
  c10::List<c10::IValue> list = new_list();
  list.reserve(items.size());
  for (c10::IValue& item : items) list.push_back(std::move(item));
  return list;
}

c10::IValue new_tuple(std::vector<c10::IValue> items) { return c10::ivalue::Tuple::create(std::move(items)); }

c10::IValue sequence_like(const c10::IValue& sequence, std::vector<c10::IValue> items) {
  if (sequence.isTuple()) return new_tuple(std::move(items));
  return new_list(std::move(items));
}

const c10::IValue* find_member(const c10::IValue& map, const char* key) {
  if (!map.isGenericDict()) return nullptr;
  const auto members = map.toGenericDict();
  const auto found = members.find(key);
  return found == members.end() || found->value().isNone() ? nullptr : &found->value();
}

c10::impl::GenericDict new_map() { return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get()); }

c10::impl::GenericDict new_map(std::vector<std::pair<c10::IValue, c10::IValue>> members) {
  const auto all = [&](bool (c10::IValue::*is)() const) {
    return std::all_of(members.begin(), members.end(), [&](const auto& member) { return (member.first.*is)(); });
  };
  const c10::TypePtr key = all(&c10::IValue::isString) ? c10::TypePtr(c10::StringType::get())
                           : all(&c10::IValue::isInt)  ? c10::TypePtr(c10::IntType::get())
                                                       : c10::TypePtr(c10::AnyType::get());
  c10::impl::GenericDict map(key, c10::AnyType::get());
  map.reserve(members.size());
  for (auto& [name, value] : members) map.insert_or_assign(std::move(name), std::move(value));
  return map;
}

std::string kind_name(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? "tensor" : "none";
  if (value.isList()) return "list";
  if (value.isTuple()) return "tuple";
  if (value.isGenericDict()) return "map";
  if (value.isNone()) return "none";
  if (value.isBool()) return "bool";
  if (value.isInt()) return "int";
  if (value.isDouble()) return "double";
  if (value.isString()) return "string";
  if (value.isDevice()) return "device";
  if (bytes_of(value) != nullptr) return "bytes";
  if (dtype_of(value)) return "dtype";
  return value.tagKind();
}

}  // namespace accel::tree
