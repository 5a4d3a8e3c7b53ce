// SPDX-License-Identifier: Apache-2.0
#include "capi/tracking/tracked_values.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "tensor/access.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"

namespace accel::capi {
namespace {

using track::Record;

constexpr int64_t kBins = 64;

std::string below(const std::string& path, std::string_view key) {
  std::string name = path;
  if (!name.empty()) name += '/';
  return name.append(key);
}

track::Histogram histogram_of(const at::Tensor& given) {
  const at::Tensor tensor = given.detach().to(c10::Device(c10::kCPU), at::kDouble).contiguous();
  const double* const begin = tensor.const_data_ptr<double>();
  const double* const end = begin + tensor.numel();
  track::Histogram result;
  for (const double* element = begin; element != end; element++) {
    if (!std::isfinite(*element)) continue;
    result.min = result.count == 0 ? *element : std::min(result.min, *element);
    result.max = result.count == 0 ? *element : std::max(result.max, *element);
    result.count++;
    result.sum += *element;
    result.sum_squares += *element * *element;
  }
  const int64_t bins = result.max > result.min ? kBins : 1;
  // Halves, because the difference of two finite numbers may not be one.
  const double width = result.max / static_cast<double>(bins) - result.min / static_cast<double>(bins);
  for (int64_t i = 0; i < bins; i++) result.edges.push_back(result.min + static_cast<double>(i) * width);
  result.edges.push_back(result.max);
  result.counts.resize(static_cast<size_t>(bins));
  for (const double* element = begin; element != end; element++) {
    if (!std::isfinite(*element)) continue;
    const double bin = width > 0 ? *element / width - result.min / width : 0;
    result.counts[static_cast<size_t>(std::clamp(bin, 0.0, static_cast<double>(bins - 1)))]++;
  }
  return result;
}

void add_tensor(Record& record, const std::string& name, const at::Tensor& tensor) {
  require(tensor.defined() && !tensor.is_complex(), Status::kTypeMismatch, "value '", name,
          "' is a tensor of complex numbers; expected real ones");
  require(!tensor.is_meta() && tensor.numel() > 0, Status::kTypeMismatch, "value '", name,
          "' is a tensor without elements; expected at least one");
  if (tensor.numel() > 1) {
    if (record.wants_histograms) record.add_histogram(name, histogram_of(tensor));
  } else if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    record.add_integer(name, tensor::single_integer(tensor));
  } else {
    record.add_number(name, tensor::single_number(tensor));
  }
}

void add_value(Record& record, const std::string& name, const c10::IValue& value) {
  if (value.isDouble()) return record.add_number(name, value.toDouble());
  if (value.isInt()) return record.add_integer(name, value.toInt());
  if (value.isBool()) return record.add_integer(name, value.toBool() ? 1 : 0);
  if (value.isString()) return record.add_text(name, value.toStringRef());
  if (value.isTensor()) return add_tensor(record, name, value.toTensor());
  if (value.isGenericDict()) return add_members(record, name, value);
  fail(Status::kTypeMismatch, "value '", name, "' is of kind ", tree::kind_name(value),
       "; expected a number, a text, a tensor or a map of them");
}

}  // namespace

std::string key_text(const c10::IValue& key) {
  return key.isString() ? key.toStringRef() : std::to_string(key.toInt());
}

Json tracked_json(const c10::IValue& value, const std::string& path) {
  return tree::json_of(value, {tree::JsonPolicy::Form::kReadable, {}}, path);
}

void add_members(Record& record, const std::string& path, const c10::IValue& map) {
  for (const auto& member : map.toGenericDict()) {
    const c10::IValue& key = member.key();
    const c10::IValue& value = member.value();
    // Most values are numbers with a short name, for which no text is made.
    if (path.empty() && key.isString() && value.isDouble())
      record.add_number(key.toStringRef(), value.toDouble());
    else
      add_value(record, below(path, key_text(key)), value);
  }
}

}  // namespace accel::capi
