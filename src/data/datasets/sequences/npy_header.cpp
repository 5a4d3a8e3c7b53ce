// SPDX-License-Identifier: Apache-2.0
// The header of .npy files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <c10/core/ScalarType.h>

#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "data/datasets/sequences/numbers_file.hpp"

namespace accel::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kDimensions = 64;

constexpr std::pair<std::string_view, c10::ScalarType> kTypes[] = {
    {"b1", c10::ScalarType::Bool},         {"i1", c10::ScalarType::Char},           {"u1", c10::ScalarType::Byte},
    {"i2", c10::ScalarType::Short},        {"u2", c10::ScalarType::UInt16},         {"f2", c10::ScalarType::Half},
    {"i4", c10::ScalarType::Int},          {"u4", c10::ScalarType::UInt32},         {"f4", c10::ScalarType::Float},
    {"i8", c10::ScalarType::Long},         {"u8", c10::ScalarType::UInt64},         {"f8", c10::ScalarType::Double},
    {"c8", c10::ScalarType::ComplexFloat}, {"c16", c10::ScalarType::ComplexDouble},
};

// The Python literal of a dictionary that the header is.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  NpyHeader read() {
    NpyHeader header{c10::ScalarType::Undefined, {}, false, 0};
    bool has_order = false, has_shape = false;
    at_ = first_bad_byte(text_);
    if (at_ != text_.size()) refuse("something that is not text");
    at_ = 0;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr") {
        header.dtype = dtype();
      } else if (key == "fortran_order") {
        header.fortran_order = truth();
        has_order = true;
      } else if (key == "shape") {
        header.shape = shape();
        has_shape = true;
      } else {
        refuse("an unknown key");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) refuse("text behind the dictionary");
    if (header.dtype == c10::ScalarType::Undefined || !has_order || !has_shape)
      refuse("no descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void refuse(const char* reason) const {
    fail(Status::kCorrupt, "'", path_, "' has a .npy header with ", reason, " at byte ", at_, " of its text");
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char byte) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != byte) return false;
    ++at_;
    return true;
  }
  void expect(char byte) {
    if (!accept(byte)) refuse("a dictionary that is not a valid one");
  }
  std::string_view string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') refuse("something that is not a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("a string without an end");
    const std::string_view found = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return found;
  }
  c10::ScalarType dtype() {
    skip_space();
    require(at_ < text_.size() && text_[at_] != '[', Status::kUnsupported, "'", path_,
            "' holds records with fields; expected an array of plain numbers");
    const std::string_view descr = string();
    require(descr.size() >= 3 && (descr[0] == '<' || descr[0] == '|' || descr[0] == '='), Status::kUnsupported, "'",
            path_, "' holds ", descr, "; expected numbers with the lowest byte first");
    for (const auto& [name, type] : kTypes)
      if (descr.substr(1) == name) return type;
    fail(Status::kUnsupported, "'", path_, "' holds ", descr, "; expected bool, integers, floats or complex numbers");
  }
  bool truth() {
    skip_space();
    const bool value = text_.substr(at_, 4) == "True";
    if (!value && text_.substr(at_, 5) != "False") refuse("something that is neither True nor False");
    at_ += value ? 4 : 5;
    return value;
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      skip_space();
      sizes.push_back(size());
      if (sizes.size() > kDimensions) refuse("more than 64 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }
  int64_t size() {
    const size_t begin = at_;
    int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (number > (std::numeric_limits<int64_t>::max() - 9) / 10) refuse("a size beyond 64 bits");
      number = number * 10 + (text_[at_] - '0');
    }
    if (at_ == begin) refuse("a size that is not a number");
    return number;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

bool is_npy(std::string_view file) { return file.substr(0, kMagic.size()) == kMagic; }

NpyHeader parse_npy_header(std::string_view file, const std::string& path) {
  require(is_npy(file) && file.size() >= 10, Status::kCorrupt, "'", path,
          "' is cut short in its .npy header; expected at least 10 bytes");
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(file[at])); };
  const size_t version = byte(6);
  require(version >= 1 && version <= 3, Status::kUnsupported, "'", path, "' has version ", version,
          " of the .npy format; expected 1 to 3");
  const size_t begin = version == 1 ? 10 : 12;
  require(file.size() >= begin, Status::kCorrupt, "'", path, "' is cut short in its .npy header");
  const size_t length = byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  require(length <= file.size() - begin, Status::kCorrupt, "'", path, "' has a .npy header of ", length,
          " bytes and only ", file.size() - begin, " follow; it was cut short");
  NpyHeader header = HeaderReader(file.substr(begin, length), path).read();
  header.data_begin = begin + length;
  const size_t there = file.size() - header.data_begin;
  size_t bytes = c10::elementSize(header.dtype);
  bool empty = false;
  for (const int64_t size : header.shape) empty = empty || size == 0;
  // No number of elements is beyond 64 bits, not even that of the other dimensions where one is 0.
  size_t most = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  for (const int64_t size : header.shape) {
    if (size == 0) continue;
    require(static_cast<size_t>(size) <= most / bytes, Status::kCorrupt, "'", path,
            "' has a .npy header whose shape has more than 2^63 bytes");
    bytes *= static_cast<size_t>(size);
  }
  if (empty) bytes = 0;
  require(bytes == there, Status::kCorrupt, "'", path, "' has ", there, " bytes of numbers; expected ", bytes,
          " as its header says", bytes > there ? ": it was cut short" : "");
  return header;
}

}  // namespace accel::data
