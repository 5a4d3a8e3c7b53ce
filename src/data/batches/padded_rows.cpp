// SPDX-License-Identifier: Apache-2.0
#include "data/batches/padded_rows.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::data {
namespace {

constexpr size_t kLargestElement = 16;
using Element = std::array<char, kLargestElement>;

bool zero_is_zero_bytes(at::ScalarType dtype) {
  return at::isIntegralType(dtype, true) || dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

// The bytes of a number in a dtype; rounded where the dtype has fractions.
Element element_of(double value, at::ScalarType dtype) {
  Element element{};
  if (value == 0 && !std::signbit(value) && zero_is_zero_bytes(dtype)) return element;
  if (at::isIntegralType(dtype, true)) {
    require(std::trunc(value) == value && std::abs(value) < 9.3e18, Status::kInvalidArgument, "the padding value ",
            value, " is not a ", c10::toString(dtype), "; expected a number that the rows' dtype has");
    const at::Tensor number = at::scalar_tensor(static_cast<int64_t>(value), at::kLong).to(dtype);
    require(static_cast<double>(number.to(at::kLong).item<int64_t>()) == value, Status::kInvalidArgument,
            "the padding value ", value, " is not a ", c10::toString(dtype),
            "; expected a number that the rows' dtype has");
    std::memcpy(element.data(), number.const_data_ptr(), number.element_size());
    return element;
  }
  const at::Tensor number = at::scalar_tensor(value, at::kDouble).to(dtype);
  std::memcpy(element.data(), number.const_data_ptr(), number.element_size());
  return element;
}

template <typename Word>
void fill_words(char* to, size_t count, const Element& element) {
  Word word;
  std::memcpy(&word, element.data(), sizeof(word));
  std::fill_n(reinterpret_cast<Word*>(to), count, word);
}

void fill(char* to, size_t bytes, const Element& element, size_t element_size) {
  switch (element_size) {
    case 1:
      std::memset(to, element[0], bytes);
      break;
    case 2:
      fill_words<uint16_t>(to, bytes / 2, element);
      break;
    case 4:
      fill_words<uint32_t>(to, bytes / 4, element);
      break;
    case 8:
      fill_words<uint64_t>(to, bytes / 8, element);
      break;
    default:
      for (size_t done = 0; done < bytes; done += element_size) std::memcpy(to + done, element.data(), element_size);
  }
}

}  // namespace

PaddedRows::PaddedRows(c10::IntArrayRef lengths, c10::IntArrayRef row_shape, const at::TensorOptions& options,
                       const Padding& padding)
    : lengths_(lengths), at_start_(padding.at_start) {
  require(padding.multiple_of >= 1, Status::kInvalidArgument, "pad_to_multiple_of is ", padding.multiple_of,
          "; expected at least 1");
  for (const int64_t length : lengths) longest_ = std::max(longest_, length);
  longest_ = (longest_ + padding.multiple_of - 1) / padding.multiple_of * padding.multiple_of;
  c10::SmallVector<int64_t, 5> shape{static_cast<int64_t>(lengths.size()), longest_};
  shape.append(row_shape.begin(), row_shape.end());
  const auto plain = options.requires_grad(false);
  if (options.device().is_cpu()) {
    values_ = tensor::empty_on_host(shape, plain);
    step_bytes_ = values_.element_size();
    for (const int64_t size : row_shape) step_bytes_ *= static_cast<size_t>(size);
    row_bytes_ = step_bytes_ * static_cast<size_t>(longest_);
    data_ = static_cast<char*>(values_.mutable_data_ptr());
    fill_around_rows(padding.value);
  } else {
    values_ = at::full(shape, padding.value, plain);
  }
  if (padding.masks) make_mask(plain);
}

void PaddedRows::fill_around_rows(double value) {
  if (values_.numel() == 0) return;
  const Element element = element_of(value, values_.scalar_type());
  for (size_t row = 0; row < lengths_.size(); ++row) {
    const size_t row_bytes = static_cast<size_t>(lengths_[row]) * step_bytes_;
    char* const begin = data_ + row * row_bytes_;
    fill(at_start_ ? begin : begin + row_bytes, row_bytes_ - row_bytes, element, values_.element_size());
  }
}

void PaddedRows::make_mask(const at::TensorOptions& options) {
  const auto rows = static_cast<int64_t>(lengths_.size());
  const at::Tensor mask = tensor::empty_on_host({rows, longest_}, options.device(at::kCPU).dtype(at::kBool));
  auto* flags = mask.mutable_data_ptr<bool>();
  for (const int64_t length : lengths_) {
    const int64_t before = at_start_ ? longest_ - length : 0;
    flags = std::fill_n(flags, before, false);
    flags = std::fill_n(flags, length, true);
    flags = std::fill_n(flags, longest_ - before - length, false);
  }
  mask_ = mask.to(values_.device());
}

at::Tensor PaddedRows::row(size_t index) const {
  return values_.select(0, static_cast<int64_t>(index)).narrow(0, static_cast<int64_t>(begin(index)), lengths_[index]);
}

}  // namespace accel::data
