// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/columns/arrow_column.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"

namespace accel::data {
namespace {

constexpr std::pair<char, c10::ScalarType> kNumbers[] = {
    {'b', c10::ScalarType::Bool},   {'c', c10::ScalarType::Char},   {'C', c10::ScalarType::Byte},
    {'s', c10::ScalarType::Short},  {'S', c10::ScalarType::UInt16}, {'i', c10::ScalarType::Int},
    {'I', c10::ScalarType::UInt32}, {'l', c10::ScalarType::Long},   {'L', c10::ScalarType::UInt64},
    {'e', c10::ScalarType::Half},   {'f', c10::ScalarType::Float},  {'g', c10::ScalarType::Double},
};

// A column, or the entries of its lists.
class ColumnReader {
 public:
  ColumnReader(ArrowArrayPtr owner, const ArrowSchema& schema, const ArrowArray& array, const NullValue& null_value,
               std::string name)
      : owner_(std::move(owner)), schema_(schema), array_(array), null_value_(null_value), name_(std::move(name)) {
    if (schema_.format == nullptr) refuse("has no format");
    if (array_.release == nullptr) refuse("was released already");
    if (array_.length < 0 || array_.offset < 0 || array_.n_buffers < 0 || array_.n_children < 0 ||
        array_.length > std::numeric_limits<int64_t>::max() - array_.offset)
      refuse("has a negative length, offset or number of buffers");
    if (array_.n_children != schema_.n_children) refuse("has not the children that its schema says");
    if (array_.n_buffers > 0 && array_.buffers == nullptr) refuse("has no buffers");
  }

  std::unique_ptr<const Column> read(int64_t begin, int64_t length) const {
    if (begin < 0 || length < 0 || begin > array_.length - length) refuse("is shorter than its record batch");
    check_nulls(begin, length);
    const std::string_view format = schema_.format;
    if (schema_.dictionary != nullptr) unsupported("dictionary of it");
    if (number_type()) return dense_column(numbers(begin, length), name_);
    if (format == "u") return texts<int32_t>(begin, length);
    if (format == "U") return texts<int64_t>(begin, length);
    if (format == "+l") return lists<int32_t>(begin, length);
    if (format == "+L") return lists<int64_t>(begin, length);
    if (format.substr(0, 3) == "+w:") return dense_column(fixed_lists(begin, length), name_);
    unsupported("");
  }

  std::optional<c10::ScalarType> number_type() const {
    for (const auto& [format, type] : kNumbers)
      if (schema_.format[0] == format && schema_.format[1] == '\0' && schema_.dictionary == nullptr) return type;
    return std::nullopt;
  }

  // One dimension, nulls replaced.
  at::Tensor numbers(int64_t begin, int64_t length) const {
    const c10::ScalarType type = *number_type();
    const auto options = at::TensorOptions().dtype(type);
    if (length == 0) return at::empty({0}, options);
    const auto* const data = static_cast<const char*>(buffer(1));
    const int64_t first = array_.offset + begin;
    at::Tensor numbers;
    if (type == at::kBool) {
      numbers = at::empty({length}, options);
      auto* const flags = numbers.mutable_data_ptr<bool>();
      for (int64_t i = 0; i < length; ++i)
        flags[i] = (static_cast<uint8_t>(data[(first + i) / 8]) >> (first + i) % 8 & 1) != 0;
    } else {
      const size_t size = c10::elementSize(type);
      const char* const begins = data + static_cast<size_t>(first) * size;
      if (reinterpret_cast<uintptr_t>(begins) % size == 0) {
        numbers = at::from_blob(
            const_cast<char*>(begins), {length}, [owner = owner_](void*) {}, options);
      } else {
        numbers = at::empty({length}, options);
        std::memcpy(numbers.mutable_data_ptr(), begins, static_cast<size_t>(length) * size);
      }
    }
    return with_null_values(std::move(numbers), begin);
  }

 private:
  [[noreturn]] void refuse(const char* reason) const {
    fail(Status::kCorrupt, "column '", name_, "' of the Arrow array ", reason);
  }
  [[noreturn]] void unsupported(const char* part) const {
    fail(Status::kUnsupported, "column '", name_, "' of the Arrow array has format '", schema_.format, "'",
         *part != '\0' ? " with a dictionary" : "",
         "; expected numbers, bool, text, or lists of numbers: cast or decode it first");
  }

  // Null for an empty array only.
  const void* buffer(int64_t index) const {
    if (index >= array_.n_buffers) refuse("has fewer buffers than its format needs");
    if (array_.buffers[index] == nullptr) refuse("has a buffer that is NULL");
    return array_.buffers[index];
  }

  void check_nulls(int64_t begin, int64_t length) const {
    if (null_value_ || arrow_null_count(array_, begin, length) == 0) return;
    int64_t first = begin;
    while (arrow_is_valid(array_, first)) ++first;
    fail(Status::kInvalidArgument, "column '", name_, "' of the Arrow array has a null in row ", first,
         "; expected none, or an option `null_value` that stands for them");
  }

  at::Tensor with_null_values(at::Tensor numbers, int64_t begin) const {
    if (!null_value_ || arrow_null_count(array_, begin, numbers.numel()) == 0) return numbers;
    const double value = *null_value_;
    const bool fits =
        !at::isIntegralType(numbers.scalar_type(), true) ||
        (std::trunc(value) == value && std::abs(value) < 9.2e18 &&
         at::scalar_tensor(value, at::kDouble).to(numbers.scalar_type()).to(at::kDouble).item<double>() == value);
    require(fits, Status::kInvalidArgument, "null_value is ", value, ", which column '", name_, "' of ",
            c10::toString(numbers.scalar_type()), " cannot hold; expected one of its numbers");
    const at::Tensor filled = numbers.clone();
    const at::Tensor number = at::scalar_tensor(value, at::kDouble).to(filled.scalar_type());
    const size_t size = filled.element_size();
    for (int64_t i = 0; i < filled.numel(); ++i)
      if (!arrow_is_valid(array_, begin + i))
        std::memcpy(static_cast<char*>(filled.mutable_data_ptr()) + static_cast<size_t>(i) * size,
                    number.const_data_ptr(), size);
    return filled;
  }

  template <typename Offset>
  const Offset* offsets(int64_t begin) const {
    return static_cast<const Offset*>(buffer(1)) + array_.offset + begin;
  }

  template <typename Offset>
  void check_offsets(const Offset* offsets, int64_t length) const {
    if (offsets[0] < 0) refuse("has an offset below 0");
    for (int64_t i = 0; i < length; ++i)
      if (offsets[i + 1] < offsets[i]) refuse("has offsets that fall");
  }

  template <typename Offset>
  std::unique_ptr<const Column> texts(int64_t begin, int64_t length) const {
    if (length == 0) return text_column(0, [](int64_t) { return std::string(); });
    const Offset* const ends = offsets<Offset>(begin);
    check_offsets(ends, length);
    const char* const bytes = ends[length] > 0 ? static_cast<const char*>(buffer(2)) : nullptr;
    return text_column(length, [owner = owner_, ends, bytes, begin, name = name_, &array = array_](int64_t index) {
      if (!arrow_is_valid(array, begin + index)) return std::string();
      std::string text(bytes + ends[index], static_cast<size_t>(ends[index + 1] - ends[index]));
      if (first_bad_byte(text) != text.size())
        fail(Status::kCorrupt, "column '", name, "' of the Arrow array is not text in row ", index,
             "; expected UTF-8 without NUL");
      return text;
    });
  }

  ColumnReader entries() const {
    if (array_.n_children != 1 || array_.children == nullptr || schema_.children == nullptr ||
        array_.children[0] == nullptr || schema_.children[0] == nullptr)
      refuse("is a list without one child");
    ColumnReader child(owner_, *schema_.children[0], *array_.children[0], null_value_, name_ + ".item");
    if (!child.number_type()) child.unsupported("");
    return child;
  }

  template <typename Offset>
  std::unique_ptr<const Column> lists(int64_t begin, int64_t length) const {
    const ColumnReader child = entries();
    at::Tensor ends = at::zeros({length + 1}, at::kLong);
    if (length == 0) return ragged_column(child.read_numbers(0, 0), ends, name_);
    const Offset* const from = offsets<Offset>(begin);
    check_offsets(from, length);
    auto* const to = ends.mutable_data_ptr<int64_t>();
    bool has_gaps = false;
    for (int64_t i = 0; i <= length; ++i) to[i] = static_cast<int64_t>(from[i]) - static_cast<int64_t>(from[0]);
    for (int64_t i = 0; i < length; ++i)
      has_gaps = has_gaps || (!arrow_is_valid(array_, begin + i) && to[i] != to[i + 1]);
    at::Tensor values = child.read_numbers(from[0], to[length]);
    if (has_gaps) std::tie(values, ends) = without_null_rows(values, ends, begin);
    return ragged_column(values, ends, name_);
  }

  // A null row may have entries that mean nothing.
  std::tuple<at::Tensor, at::Tensor> without_null_rows(const at::Tensor& values, const at::Tensor& ends,
                                                       int64_t begin) const {
    std::vector<at::Tensor> rows{values.narrow(0, 0, 0)};
    at::Tensor shorter = at::zeros_like(ends);
    const auto* const from = ends.const_data_ptr<int64_t>();
    auto* const to = shorter.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i + 1 < ends.numel(); ++i) {
      const int64_t length = arrow_is_valid(array_, begin + i) ? from[i + 1] - from[i] : 0;
      to[i + 1] = to[i] + length;
      rows.push_back(values.narrow(0, from[i], length));
    }
    return {at::cat(rows), shorter};
  }

  at::Tensor fixed_lists(int64_t begin, int64_t length) const {
    const std::string_view digits = std::string_view(schema_.format).substr(3);
    int64_t width = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), width);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || width < 0)
      refuse("has a list size that is not a number");
    require(arrow_null_count(array_, begin, length) == 0, Status::kUnsupported, "column '", name_,
            "' of the Arrow array has nulls among lists of fixed size; expected none");
    const ColumnReader child = entries();
    const int64_t first = array_.offset + begin;
    if (width > 0 && first + length > std::numeric_limits<int64_t>::max() / width) refuse("is longer than memory");
    return child.read_numbers(first * width, length * width).reshape({length, width});
  }

  at::Tensor read_numbers(int64_t begin, int64_t length) const {
    if (begin < 0 || length < 0 || length > array_.length || begin > array_.length - length)
      refuse("is shorter than its lists say");
    check_nulls(begin, length);
    return numbers(begin, length);
  }

  ArrowArrayPtr owner_;
  const ArrowSchema& schema_;
  const ArrowArray& array_;
  const NullValue& null_value_;
  std::string name_;
};

}  // namespace

std::unique_ptr<const Column> arrow_column(const ArrowArrayPtr& owner, const ArrowSchema& schema,
                                           const ArrowArray& array, int64_t begin, int64_t length,
                                           const NullValue& null_value) {
  return ColumnReader(owner, schema, array, null_value, schema.name != nullptr ? schema.name : "").read(begin, length);
}

}  // namespace accel::data
