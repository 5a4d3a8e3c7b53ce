// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_writer.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/error.hpp"
#include "checkpoint/formats/torch/typed_bytes.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr size_t kBatch = 1000;  // items that wait on the reader's stack, as Python's

}  // namespace

std::string PickleWriter::pickle(const c10::IValue& value) {
  stream_ = PickleStream();
  add_value(value, "", 0);
  return stream_.take();
}

void PickleWriter::add_value(const c10::IValue& value, const std::string& path, int depth) {
  require(depth <= tree::kDeepest, Status::kInvalidArgument, "the value at '", path, "' is nested more than ",
          tree::kDeepest, " deep; files cannot hold it");
  if (value.isNone()) return stream_.add_none();
  if (value.isBool()) return stream_.add_bool(value.toBool());
  if (value.isInt()) return stream_.add_integer(value.toInt());
  if (value.isDouble()) return stream_.add_double(value.toDouble());
  if (value.isString()) return stream_.add_text(value.toStringRef());
  if (value.isTensor())
    return value.toTensor().defined() ? write_tensor_(value.toTensor(), stream_) : stream_.add_none();
  if (value.isList()) return add_list(value.toListRef(), path, depth);
  if (value.isTuple()) {
    stream_.begin_tuple();
    add_items(value.toTupleRef().elements(), path, depth);
    return stream_.end_tuple();
  }
  if (value.isGenericDict()) return add_map(value.toGenericDict(), path, depth);
  if (value.isDevice()) {
    stream_.add_name("torch", "device");
    stream_.begin_tuple();
    stream_.add_text(at::DeviceTypeName(value.toDevice().type(), /*lower_case=*/true));
    if (value.toDevice().has_index()) stream_.add_integer(value.toDevice().index());
    stream_.end_tuple();
    return stream_.call();
  }
  add_capsule(value, path);
}

void PickleWriter::add_capsule(const c10::IValue& value, const std::string& path) {
  if (const auto dtype = tree::dtype_of(value)) return stream_.add_dtype(*dtype);
  const tree::Bytes* const bytes = tree::bytes_of(value);
  require(bytes != nullptr, Status::kTypeMismatch, "the value at '", path, "' is a ", tree::kind_name(value),
          "; files hold numbers, strings, bytes, tensors, lists, tuples and maps");
  if (bytes->type.empty()) return stream_.add_bytes(bytes->data);
  stream_.begin_map();
  stream_.add_text(kTypedBytes);
  stream_.begin_tuple();
  stream_.add_text(bytes->type);
  stream_.add_bytes(bytes->data);
  stream_.end_tuple();
  stream_.set_member();
}

void PickleWriter::add_items(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth) {
  size_t index = 0;
  for (const c10::IValue& item : items) add_value(item, tree::path_below(path, std::to_string(index++)), depth + 1);
}

void PickleWriter::add_list(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth) {
  stream_.begin_list();
  for (size_t begin = 0; begin < items.size(); begin += kBatch) {
    stream_.begin_items();
    for (size_t i = begin; i < std::min(begin + kBatch, items.size()); i++)
      add_value(items[i], tree::path_below(path, std::to_string(i)), depth + 1);
    stream_.append_items();
  }
}

void PickleWriter::add_map(const c10::impl::GenericDict& map, const std::string& path, int depth) {
  stream_.begin_map();
  size_t count = 0;
  for (const auto& member : map) {
    const c10::IValue& key = member.key();
    require(key.isString() || key.isInt(), Status::kTypeMismatch, "the map at '", path, "' has a key of kind ",
            tree::kind_name(key), "; files hold maps with strings or integers as keys");
    require(map.size() > 1 || !key.isString() || key.toStringRef() != kTypedBytes, Status::kInvalidArgument,
            "the map at '", path, "' has the key '", kTypedBytes, "' alone, which files use for bytes with a type");
    if (count % kBatch == 0) stream_.begin_items();
    const std::string name = key.isInt() ? std::to_string(key.toInt()) : key.toStringRef();
    if (key.isInt())
      stream_.add_integer(key.toInt());
    else
      stream_.add_text(name);
    add_value(member.value(), tree::path_below(path, name), depth + 1);
    if (++count % kBatch == 0 || count == map.size()) stream_.set_members();
  }
}

}  // namespace accel::checkpoint
