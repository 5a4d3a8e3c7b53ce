// SPDX-License-Identifier: Apache-2.0
#include "fixture.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <fstream>
#include <iterator>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), Status::kNotFound, "fixture ", path, " cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

at::Tensor decode_tensor(const c10::IValue& encoded) {
  const c10::IValue list = member(encoded, "values");
  const auto values = list.toListRef();
  const auto dtype = tensor::dtype_from_name(member(encoded, "dtype").toStringRef());
  const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  const auto count = static_cast<int64_t>(values.size());
  at::Tensor tensor = at::empty({count}, integral ? at::kLong : at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    if (integral) {
      tensor.mutable_data_ptr<int64_t>()[i] = values[i].isBool() ? values[i].toBool() : values[i].toInt();
    } else {
      tensor.mutable_data_ptr<double>()[i] = values[i].toScalar().toDouble();
    }
  }
  return tensor.to(dtype).reshape(integers(member(encoded, "shape")));
}

c10::IValue decode(const c10::IValue& value) {
  if (value.isList()) {
    auto list = tree::new_list();
    for (const auto& item : value.toListRef()) list.push_back(decode(item));
    return list;
  }
  if (!value.isGenericDict()) return value;
  const auto map = value.toGenericDict();
  if (map.contains("dtype") && map.contains("shape") && map.contains("values")) return decode_tensor(value);
  if (map.contains("tuple") && map.size() == 1) return decode(map.at("tuple"));
  auto decoded = tree::new_map();
  for (const auto& entry : map) decoded.insert(entry.key(), decode(entry.value()));
  return decoded;
}

}  // namespace

std::string fixture_folder() { return environment_text("ACCEL_PARITY_DIR").value_or(ACCEL_PARITY_FIXTURES); }

std::vector<Case> read_cases(const std::string& file) {
  const std::string path = fixture_folder() + "/" + file + ".json";
  const c10::IValue document = tree::from_json(read_file(path), path);
  std::vector<Case> cases;
  for (const auto& entry : member(document, "cases").toListRef())
    cases.push_back({member(entry, "name").toStringRef(), decode(member(entry, "input")),
                     decode(optional_member(entry, "expected").value_or(c10::IValue()))});
  require(!cases.empty(), Status::kCorrupt, "fixture ", path, " has no case");
  return cases;
}

std::optional<c10::IValue> optional_member(const c10::IValue& map, const std::string& key) {
  if (!map.isGenericDict()) return std::nullopt;
  const auto members = map.toGenericDict();
  const auto entry = members.find(key);
  if (entry == members.end() || entry->value().isNone()) return std::nullopt;
  return entry->value();
}

c10::IValue member(const c10::IValue& map, const std::string& key) {
  const auto value = optional_member(map, key);
  require(value.has_value(), Status::kCorrupt, "a fixture lacks \"", key, "\"");
  return *value;
}

std::vector<int64_t> integers(const c10::IValue& list) {
  std::vector<int64_t> numbers;
  for (const auto& item : list.toListRef()) numbers.push_back(item.toInt());
  return numbers;
}

std::optional<std::string> error_type(const c10::IValue& expected) {
  const auto error = optional_member(expected, "error");
  return error ? std::optional<std::string>(member(*error, "type").toStringRef()) : std::nullopt;
}

}  // namespace accel::parity
