// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/device_map_value.hpp"

#include <cmath>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

double read_bytes(const c10::IValue& value, const std::string& name) {
  if (value.isString()) return static_cast<double>(parse_byte_size(value.toStringRef()));
  require(value.isInt() || value.isDouble(), Status::kTypeMismatch, name, " is a ", tree::kind_name(value),
          "; expected a number of bytes, or a text such as \"8GiB\"");
  return value.toScalar().toDouble();
}

const c10::impl::GenericDict map_in(const c10::IValue& value, const std::string& name, const char* expected) {
  require(value.isGenericDict(), Status::kTypeMismatch, name, " is a ", tree::kind_name(value), "; expected ",
          expected);
  return value.toGenericDict();
}

}  // namespace

c10::IValue value_of_place(const std::string& place) {
  if (is_accelerator_number(place)) return static_cast<int64_t>(std::stoll(place));
  return place;
}

c10::IValue value_of_bytes(double bytes) {
  if (std::isinf(bytes)) return {};
  const auto whole = static_cast<int64_t>(bytes);
  if (static_cast<double>(whole) == bytes) return whole;
  return bytes;
}

c10::IValue value_of(const DeviceMap& map) {
  auto value = tree::new_map();
  for (const auto& [path, place] : map) value.insert(path, value_of_place(place));
  return value;
}

c10::IValue value_of(const MaxMemory& memory) {
  auto value = tree::new_map();
  for (const auto& [place, bytes] : memory) value.insert(value_of_place(place), value_of_bytes(bytes));
  return value;
}

std::string read_place(const c10::IValue& value, const std::string& name) {
  require(value.isInt() || value.isString() || value.isDevice(), Status::kTypeMismatch, name, " is a ",
          tree::kind_name(value), "; expected the number of an accelerator, or a text such as \"cpu\"");
  if (value.isDevice()) return value.toDevice().str();
  std::string place = value.isString() ? value.toStringRef() : std::to_string(value.toInt());
  check_place(place);
  return place;
}

DeviceMap read_device_map(const c10::IValue& value, const std::string& name) {
  DeviceMap map;
  for (const auto& entry : map_in(value, name, "a map from paths of modules to devices")) {
    require(entry.key().isString(), Status::kTypeMismatch, name,
            " has a key that is not text; expected paths of modules");
    const std::string& path = entry.key().toStringRef();
    map.emplace_back(path, read_place(entry.value(), text(name, "['", path, "']")));
  }
  return map;
}

MaxMemory read_max_memory(const c10::IValue& value, const std::string& name) {
  MaxMemory memory;
  for (const auto& entry : map_in(value, name, "a map from devices to bytes")) {
    std::string place = read_place(entry.key(), text("a key of ", name));
    const double bytes = read_bytes(entry.value(), text(name, "['", place, "']"));
    memory.emplace_back(std::move(place), bytes);
  }
  return ordered_memory(std::move(memory));
}

}  // namespace accel::bigmodel
