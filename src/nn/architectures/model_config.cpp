// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/model_config.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/initial.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {

int64_t size_member(const Json& config, const char* key, int64_t otherwise) {
  const int64_t size = json_integer(config, key, otherwise);
  check_size(size, key);
  constexpr int64_t kLargest = 1 << 30;
  require(size <= kLargest, Status::kInvalidArgument, key, " is ", size, "; expected at most ", kLargest);
  return size;
}

int64_t layers_member(const Json& config, const char* key, int64_t otherwise) {
  const int64_t layers = size_member(config, key, otherwise);
  constexpr int64_t kMost = 4096;
  require(layers <= kMost, Status::kInvalidArgument, key, " is ", layers, "; expected at most ", kMost);
  return layers;
}

bool says_none(const Json& config, const char* key) {
  for (const auto& [name, value] : *config.members())
    if (name == key) return value.is_null();
  return false;
}

bool is_empty(const Json& value) {
  if (const Json::Items* const items = value.items()) return items->empty();
  const Json::Members* const members = value.members();
  return members != nullptr && members->empty();
}

bool names_model_class(const Json& config, const char* name) {
  const Json* const architectures = json_member(config, "architectures");
  const Json::Items* const names = architectures == nullptr ? nullptr : architectures->items();
  if (names == nullptr) return false;
  for (const Json& given : *names)
    if (given.text() != nullptr && *given.text() == name) return true;
  return false;
}

void require_model_class(const Json& config, const char* name) {
  const Json* const architectures = json_member(config, "architectures");
  if (architectures == nullptr || is_empty(*architectures)) return;
  require(names_model_class(config, name), Status::kUnsupported, "architectures is ", print_json(*architectures),
          "; expected ", name);
}

void refuse_quantization(const Json& config) {
  const Json* const value = json_member(config, "quantization_config");
  require(value == nullptr || is_empty(*value), Status::kUnsupported,
          "quantization_config is set; remove it from the configuration");
}

std::string model_class(const Json& config, std::initializer_list<const char*> known) {
  const Json* const architectures = json_member(config, "architectures");
  if (architectures == nullptr || is_empty(*architectures)) return *known.begin();
  std::string names;
  for (const char* const name : known) {
    if (names_model_class(config, name)) return name;
    names += text(names.empty() ? "" : ", ", name);
  }
  fail(Status::kUnsupported, "architectures is ", print_json(*architectures), "; expected one of ", names);
}

int64_t number_of_classes(const Json& config) {
  const Json* const names = json_member(config, "id2label");
  if (names == nullptr || names->members() == nullptr) return size_member(config, "num_labels", 2);
  const auto classes = static_cast<int64_t>(names->members()->size());
  check_size(classes, "the number of names in id2label");
  const int64_t given = json_integer(config, "num_labels", classes);
  require(given == classes, Status::kInvalidArgument, "num_labels is ", given, " and id2label has ", classes,
          " names; expected as many");
  return classes;
}

double initializer_range(const Json& config) {
  const double range = json_number(config, "initializer_range", 0.02);
  require(range >= 0, Status::kInvalidArgument, "initializer_range is ", range, "; expected 0 or more");
  return range;
}

at::ScalarType weight_dtype(const Json& config) {
  const std::string name = json_text(config, "dtype", json_text(config, "torch_dtype", "float32"));
  const tensor::Dtype* dtype = tensor::find_dtype(name);
  require(dtype != nullptr && at::isFloatingType(dtype->type), Status::kUnsupported, "dtype '", name,
          "' cannot hold weights; expected a floating one such as float32 or bfloat16");
  return dtype->type;
}

at::Tensor normal_parameter(at::IntArrayRef sizes, double deviation, at::ScalarType dtype) {
  const at::Tensor parameter = at::empty(sizes, new_parameter_options().dtype(dtype));
  fill_normal(parameter, 0.0, deviation);
  return parameter;
}

at::Tensor normal_weight(int64_t rows, int64_t columns, double deviation, at::ScalarType dtype) {
  return normal_parameter({rows, columns}, deviation, dtype);
}

}  // namespace accel::nn
