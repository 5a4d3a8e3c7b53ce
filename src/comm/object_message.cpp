// SPDX-License-Identifier: Apache-2.0
#include "comm/object_message.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

// Every value is a tag and its content. Counts and sizes have 8 bytes.
namespace accel::comm {
namespace {

enum class Tag : uint8_t { kNone, kFalse, kTrue, kInt, kDouble, kString, kTensor, kList, kMap, kTuple, kBytes, kDtype };

class Writer {
 public:
  void write(const c10::IValue& value, int depth) {
    require(depth <= tree::kDeepest, Status::kInvalidArgument, "a value is nested more than ", tree::kDeepest,
            " levels deep");
    if (value.isNone()) return put(Tag::kNone);
    if (value.isBool()) return put(value.toBool() ? Tag::kTrue : Tag::kFalse);
    if (value.isInt()) return put(Tag::kInt), put(value.toInt());
    if (value.isDouble()) return put(Tag::kDouble), put(value.toDouble());
    if (value.isString()) return put(Tag::kString), put_text(value.toStringRef());
    if (value.isDevice()) return put(Tag::kString), put_text(value.toDevice().str());
    if (value.isTensor()) return put_tensor(value.toTensor());
    if (value.isGenericDict()) return put_map(value.toGenericDict(), depth);
    if (const tree::Bytes* const bytes = tree::bytes_of(value))
      return put(Tag::kBytes), put_text(bytes->type), put_text(bytes->data);
    if (const auto dtype = tree::dtype_of(value)) return put(Tag::kDtype), put(tensor::dtype_number(*dtype));
    if (!tree::is_sequence(value))
      fail(Status::kTypeMismatch, "a value of kind ", tree::kind_name(value),
           " cannot be sent; expected numbers, strings, bytes, tensors, lists, tuples and maps");
    const auto items = tree::sequence_items(value);
    put(value.isTuple() ? Tag::kTuple : Tag::kList);
    put(static_cast<uint64_t>(items.size()));
    for (const c10::IValue& item : items) write(item, depth + 1);
  }

  std::string take() { return std::move(message_); }

 private:
  template <typename Number>
  void put(Number number) {
    static_assert(std::is_trivially_copyable_v<Number>);
    message_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }

  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    message_.append(text);
  }

  void put_map(const c10::impl::GenericDict& members, int depth) {
    put(Tag::kMap);
    put(static_cast<uint64_t>(members.size()));
    for (const auto& member : members) {
      if (!member.key().isString() && !member.key().isInt())
        fail(Status::kTypeMismatch, "a map has a key of kind ", tree::kind_name(member.key()),
             "; expected strings or integers");
      write(member.key(), depth + 1);
      write(member.value(), depth + 1);
    }
  }

  void put_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return put(Tag::kNone);
    require(tensor.layout() == at::kStrided, Status::kTypeMismatch,
            "an object has a tensor that is not dense; make it dense first");
    const at::Tensor data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
    put(Tag::kTensor);
    put(tensor::dtype_number(data.scalar_type()));
    put(static_cast<uint64_t>(data.dim()));
    for (const int64_t size : data.sizes()) put(size);
    if (data.nbytes() != 0) message_.append(static_cast<const char*>(data.const_data_ptr()), data.nbytes());
  }

  std::string message_;
};

class Reader {
 public:
  explicit Reader(std::string_view message) : rest_(message) {}

  c10::IValue read(int depth) {
    check(depth <= tree::kDeepest);
    switch (get<Tag>()) {
      case Tag::kNone:
        return {};
      case Tag::kFalse:
        return false;
      case Tag::kTrue:
        return true;
      case Tag::kInt:
        return get<int64_t>();
      case Tag::kDouble:
        return get<double>();
      case Tag::kString:
        return std::string(get_text());
      case Tag::kTensor:
        return get_tensor();
      case Tag::kList: {
        auto items = tree::new_list();
        const uint64_t count = get_count();
        items.reserve(count);
        for (uint64_t i = 0; i < count; i++) items.push_back(read(depth + 1));
        return items;
      }
      case Tag::kTuple: {
        std::vector<c10::IValue> items(get_count());
        for (c10::IValue& item : items) item = read(depth + 1);
        return tree::new_tuple(std::move(items));
      }
      case Tag::kMap: {
        std::vector<std::pair<c10::IValue, c10::IValue>> members(get_count());
        for (auto& [key, member] : members) {
          key = read(depth + 1);
          check(key.isString() || key.isInt());
          member = read(depth + 1);
        }
        return tree::new_map(std::move(members));
      }
      case Tag::kBytes: {
        std::string type(get_text());
        return tree::bytes_value(std::string(get_text()), std::move(type));
      }
      case Tag::kDtype: {
        const tensor::Dtype* const dtype = tensor::find_dtype(get<int32_t>());
        check(dtype != nullptr);
        return tree::dtype_value(dtype->type);
      }
    }
    check(false);
    return {};
  }

  bool at_end() const { return rest_.empty(); }

  static void check(bool good) {
    require(good, Status::kCorrupt,
            "an object of another rank cannot be read; expected the same version of libaccel on "
            "all ranks");
  }

 private:
  std::string_view take(uint64_t size) {
    check(size <= rest_.size());
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  template <typename Number>
  Number get() {
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }

  std::string_view get_text() { return take(get<uint64_t>()); }

  // A count of items of at least one byte.
  uint64_t get_count() {
    const auto count = get<uint64_t>();
    check(count <= rest_.size());
    return count;
  }

  at::Tensor get_tensor() {
    const tensor::Dtype* const dtype = tensor::find_dtype(get<int32_t>());
    check(dtype != nullptr);
    std::vector<int64_t> sizes(get_count());
    uint64_t bytes = dtype->size;
    bool empty = false;
    for (int64_t& size : sizes) {
      size = get<int64_t>();
      check(size >= 0);
      empty = empty || size == 0;
    }
    const uint64_t most = empty ? std::numeric_limits<int64_t>::max() : rest_.size();
    for (const int64_t size : sizes) {
      if (size == 0) continue;
      check(bytes <= most / static_cast<uint64_t>(size));
      bytes *= static_cast<uint64_t>(size);
    }
    const std::string_view data = take(empty ? 0 : bytes);
    at::Tensor tensor = at::empty(sizes, dtype->type);
    if (!data.empty()) std::memcpy(tensor.data_ptr(), data.data(), data.size());
    return tensor;
  }

  std::string_view rest_;
};

}  // namespace

std::string encode_object(const c10::IValue& value) {
  Writer writer;
  writer.write(value, 0);
  return writer.take();
}

c10::IValue decode_object(std::string_view message) {
  Reader reader(message);
  c10::IValue value = reader.read(0);
  Reader::check(reader.at_end());
  return value;
}

}  // namespace accel::comm
