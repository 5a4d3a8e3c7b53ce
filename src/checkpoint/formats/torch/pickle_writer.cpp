#include "checkpoint/formats/torch/pickle_writer.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "checkpoint/formats/torch/typed_bytes.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr size_t kBatch = 1000;  // items that wait on the reader's stack, as Python's

}  // namespace

std::string PickleWriter::pickle(const c10::IValue& value) {
  return pickle_added([&] { add_value(value, "", 0); });
}

std::string PickleWriter::pickle_added(const std::function<void()>& add) {
  out_.clear();
  memo_.clear();
  add_byte(0x80);  // PROTO
  add_byte(2);
  add();
  add_byte('.');  // STOP
  return std::move(out_);
}

void PickleWriter::add_value(const c10::IValue& value, const std::string& path, int depth) {
  require(depth <= tree::kDeepest, Status::kInvalidArgument, "the value at '", path, "' is nested more than ",
          tree::kDeepest, " deep; files cannot hold it");
  if (value.isNone()) return add_byte('N');
  if (value.isBool()) return add_bool(value.toBool());
  if (value.isInt()) return add_integer(value.toInt());
  if (value.isDouble()) return add_double(value.toDouble());
  if (value.isString()) return add_text(value.toStringRef());
  if (value.isTensor()) return value.toTensor().defined() ? write_tensor_(value.toTensor(), *this) : add_byte('N');
  if (value.isList()) return add_list(value.toListRef(), path, depth);
  if (value.isTuple()) {
    begin_tuple();
    add_items(value.toTupleRef().elements(), path, depth);
    return end_tuple();
  }
  if (value.isGenericDict()) return add_map(value.toGenericDict(), path, depth);
  if (value.isDevice()) {
    add_name("torch", "device");
    begin_tuple();
    add_text(at::DeviceTypeName(value.toDevice().type(), /*lower_case=*/true));
    if (value.toDevice().has_index()) add_integer(value.toDevice().index());
    end_tuple();
    return call();
  }
  add_capsule(value, path);
}

void PickleWriter::add_capsule(const c10::IValue& value, const std::string& path) {
  if (const auto dtype = tree::dtype_of(value)) return add_dtype(*dtype);
  const tree::Bytes* const bytes = tree::bytes_of(value);
  require(bytes != nullptr, Status::kTypeMismatch, "the value at '", path, "' is a ", tree::kind_name(value),
          "; files hold numbers, strings, bytes, tensors, lists, tuples and maps");
  if (bytes->type.empty()) return add_bytes(bytes->data);
  add_byte('}');
  add_text(kTypedBytes);
  begin_tuple();
  add_text(bytes->type);
  add_bytes(bytes->data);
  end_tuple();
  add_byte('s');
}

void PickleWriter::add_items(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth) {
  size_t index = 0;
  for (const c10::IValue& item : items) add_value(item, tree::path_below(path, std::to_string(index++)), depth + 1);
}

void PickleWriter::add_list(c10::ArrayRef<c10::IValue> items, const std::string& path, int depth) {
  add_byte(']');
  for (size_t begin = 0; begin < items.size(); begin += kBatch) {
    add_byte('(');
    for (size_t i = begin; i < std::min(begin + kBatch, items.size()); i++)
      add_value(items[i], tree::path_below(path, std::to_string(i)), depth + 1);
    add_byte('e');  // APPENDS
  }
}

void PickleWriter::add_map(const c10::impl::GenericDict& map, const std::string& path, int depth) {
  add_byte('}');
  size_t count = 0;
  for (const auto& member : map) {
    const c10::IValue& key = member.key();
    require(key.isString() || key.isInt(), Status::kTypeMismatch, "the map at '", path, "' has a key of kind ",
            tree::kind_name(key), "; files hold maps with strings or integers as keys");
    require(map.size() > 1 || !key.isString() || key.toStringRef() != kTypedBytes, Status::kInvalidArgument,
            "the map at '", path, "' has the key '", kTypedBytes, "' alone, which files use for bytes with a type");
    if (count % kBatch == 0) add_byte('(');
    const std::string name = key.isInt() ? std::to_string(key.toInt()) : key.toStringRef();
    if (key.isInt())
      add_integer(key.toInt());
    else
      add_text(name);
    add_value(member.value(), tree::path_below(path, name), depth + 1);
    if (++count % kBatch == 0 || count == map.size()) add_byte('u');  // SETITEMS
  }
}

void PickleWriter::add_name(std::string_view module, std::string_view name) {
  std::string key = text("n", module, ".", name);
  if (recall(key)) return;
  out_ += text("c", module, "\n", name, "\n");  // GLOBAL
  remember(std::move(key));
}

void PickleWriter::add_dtype(at::ScalarType dtype) { add_name("torch", tensor::dtype_name(dtype)); }

void PickleWriter::add_integer(int64_t integer) {
  if (integer >= 0 && integer <= 0xff) {
    add_byte('K');  // BININT1
    add_little_endian(static_cast<uint64_t>(integer), 1);
  } else if (integer >= std::numeric_limits<int32_t>::min() && integer <= std::numeric_limits<int32_t>::max()) {
    add_byte('J');  // BININT
    add_little_endian(static_cast<uint64_t>(integer), 4);
  } else {
    add_byte(0x8a);  // LONG1
    add_byte(8);
    add_little_endian(static_cast<uint64_t>(integer), 8);
  }
}

void PickleWriter::add_bool(bool flag) { add_byte(flag ? 0x88 : 0x89); }

void PickleWriter::add_double(double number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  add_byte('G');  // BINFLOAT
  add_little_endian(__builtin_bswap64(bits), 8);
}

void PickleWriter::add_text(std::string_view text) {
  require(is_utf8(text), Status::kInvalidArgument, "the string '", printable(text),
          "' is not UTF-8; files cannot hold it");
  std::string key = "t" + std::string(text);
  if (recall(key)) return;
  require(text.size() <= std::numeric_limits<uint32_t>::max(), Status::kInvalidArgument, "a string has ", text.size(),
          " bytes; files hold less than 4 GiB");
  add_byte('X');  // BINUNICODE
  add_little_endian(text.size(), 4);
  out_ += text;
  remember(std::move(key));
}

void PickleWriter::add_bytes(std::string_view bytes) {
  add_name("_codecs", "encode");
  begin_tuple();
  const std::string text = utf8_of_latin1(bytes);
  require(text.size() <= std::numeric_limits<uint32_t>::max(), Status::kInvalidArgument, "bytes of ", bytes.size(),
          " are too long for a file of values; store them as a tensor");
  add_byte('X');
  add_little_endian(text.size(), 4);
  out_ += text;
  add_text("latin1");
  end_tuple();
  call();
}

void PickleWriter::add_tuple(at::IntArrayRef integers) {
  begin_tuple();
  for (const int64_t integer : integers) add_integer(integer);
  end_tuple();
}

void PickleWriter::begin_tuple() { add_byte('('); }
void PickleWriter::end_tuple() { add_byte('t'); }
void PickleWriter::call() { add_byte('R'); }
void PickleWriter::begin_list() { add_byte(']'); }
void PickleWriter::append() { add_byte('a'); }
void PickleWriter::begin_map() { add_byte('}'); }
void PickleWriter::set_member() { add_byte('s'); }

void PickleWriter::begin_object(std::string_view module, std::string_view class_name) {
  add_name(module, class_name);
  add_byte(')');   // no arguments
  add_byte(0x81);  // NEWOBJ
}

void PickleWriter::set_state() { add_byte('b'); }

void PickleWriter::refer_to_storage() { add_byte('Q'); }

void PickleWriter::add_little_endian(uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) add_byte(static_cast<int>(number >> (8 * i) & 0xff));
}

bool PickleWriter::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  const bool is_small = found->second <= 0xff;
  add_byte(is_small ? 'h' : 'j');  // BINGET, LONG_BINGET
  add_little_endian(found->second, is_small ? 1 : 4);
  return true;
}

void PickleWriter::remember(std::string key) {
  const auto index = static_cast<uint32_t>(memo_.size());
  memo_.emplace(std::move(key), index);
  const bool is_small = index <= 0xff;
  add_byte(is_small ? 'q' : 'r');  // BINPUT, LONG_BINPUT
  add_little_endian(index, is_small ? 1 : 4);
}

}  // namespace accel::checkpoint
