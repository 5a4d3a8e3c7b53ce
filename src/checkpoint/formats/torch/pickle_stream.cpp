// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_stream.hpp"

#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "tensor/dtype.hpp"

namespace accel::checkpoint {

PickleStream::PickleStream() {
  add_byte(0x80);  // PROTO
  add_byte(2);
}

std::string PickleStream::take() {
  add_byte('.');  // STOP
  return std::exchange(*this, PickleStream()).out_;
}

void PickleStream::add_name(std::string_view module, std::string_view name) {
  std::string key = text("n", module, ".", name);
  if (recall(key)) return;
  out_ += text("c", module, "\n", name, "\n");  // GLOBAL
  remember(std::move(key));
}

void PickleStream::add_dtype(at::ScalarType dtype) { add_name("torch", tensor::dtype_name(dtype)); }

void PickleStream::add_integer(int64_t integer) {
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

void PickleStream::add_bool(bool flag) { add_byte(flag ? 0x88 : 0x89); }

void PickleStream::add_double(double number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  add_byte('G');  // BINFLOAT
  add_little_endian(__builtin_bswap64(bits), 8);
}

void PickleStream::add_text(std::string_view text) {
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

void PickleStream::add_bytes(std::string_view bytes) {
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

void PickleStream::add_tuple(at::IntArrayRef integers) {
  begin_tuple();
  for (const int64_t integer : integers) add_integer(integer);
  end_tuple();
}

void PickleStream::begin_object(std::string_view module, std::string_view class_name) {
  add_name(module, class_name);
  add_byte(')');   // no arguments
  add_byte(0x81);  // NEWOBJ
}

void PickleStream::add_little_endian(uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) add_byte(static_cast<int>(number >> (8 * i) & 0xff));
}

bool PickleStream::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  const bool is_small = found->second <= 0xff;
  add_byte(is_small ? 'h' : 'j');  // BINGET, LONG_BINGET
  add_little_endian(found->second, is_small ? 1 : 4);
  return true;
}

void PickleStream::remember(std::string key) {
  const auto index = static_cast<uint32_t>(memo_.size());
  memo_.emplace(std::move(key), index);
  const bool is_small = index <= 0xff;
  add_byte(is_small ? 'q' : 'r');  // BINPUT, LONG_BINPUT
  add_little_endian(index, is_small ? 1 : 4);
}

}  // namespace accel::checkpoint
