// SPDX-License-Identifier: Apache-2.0
#include "config/option_json.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "config/interned_bytes.hpp"
#include "config/option_text.hpp"
#include "json/json.hpp"

namespace accel {
namespace {

class Writer {
 public:
  Writer(const OptionTable& table, std::string name)
      : table_(table), name_(std::move(name)), bytes_(unset_options(table)) {}

  void write(const Json& object) {
    require(object.members() != nullptr, Status::kInvalidArgument, name_, " is ", print_json(object),
            "; expected an object with fields of ", table_.name);
    for (const auto& [key, value] : *object.members()) write(field_named(key), value);
    for (const OptionField& field : table_) check_option(field, bytes_.data(), name_.c_str());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  const OptionField& field_named(const std::string& key) const {
    std::string_view nearest;
    for (const OptionField& field : table_) {
      if (field.kind == OptionKind::kReserved) continue;
      if (key == field.name) return field;
      if (nearest.empty() || edit_distance(key, field.name) < edit_distance(key, nearest)) nearest = field.name;
    }
    fail(Status::kNotFound, "there is no field '", key, "' in ", table_.name, "; the nearest name is ", nearest);
  }

  void write(const OptionField& field, const Json& value) {
    if (value.is_null()) return;
    switch (field.kind) {
      case OptionKind::kFlag:
        return value.flag() != nullptr ? put(field, int32_t{*value.flag()})
                                       : write_integer(field, value, "true or false");
      case OptionKind::kInteger:
        return write_integer(field, value, "an integer");
      case OptionKind::kChoice:
        return value.text() != nullptr ? put(field, choice(field, *value.text()))
                                       : write_integer(field, value, "a name or a number");
      case OptionKind::kNumber:
        if (const auto number = value.number()) return put(field, *number);
        refuse(field, value, "a number");
      case OptionKind::kText:
        if (value.text() != nullptr && value.text()->find('\0') == std::string::npos)
          return put(field, interned_bytes(*value.text()));
        refuse(field, value, "a text");
      default:
        return write_nested(field, value);
    }
  }

  void write_integer(const OptionField& field, const Json& value, const char* expected) {
    const auto integer = value.integer();
    if (!integer) refuse(field, value, expected);
    if (field.size == sizeof(int64_t)) return put(field, *integer);
    // A number beyond 32 bits is outside of every interval of such a field, so the check of intervals reports it.
    put(field, static_cast<int32_t>(std::clamp<int64_t>(*integer, kUnsetInt32 + 1, INT32_MAX)));
  }

  int32_t choice(const OptionField& field, const std::string& name) const {
    if (const OptionChoice* const found = find_choice(field, name)) return found->value;
    refuse(field, Json(name), "one of " + choice_names(field, ", "));
  }

  void write_nested(const OptionField& field, const Json& value) {
    if (field.nested == nullptr)
      refuse(field, value, text("nothing: it is a pointer, to be written at byte ", field.offset, " of the struct"));
    Writer nested(*field.nested, text(name_, ".", field.name));
    nested.write(value);
    put(field, interned_bytes({reinterpret_cast<const char*>(nested.bytes().data()), nested.bytes().size()}));
  }

  template <typename Value>
  void put(const OptionField& field, Value value) {
    std::memcpy(bytes_.data() + field.offset, &value, sizeof value);
  }

  [[noreturn]] void refuse(const OptionField& field, const Json& value, const std::string& expected) const {
    fail(Status::kInvalidArgument, name_, ".", field.name, " is ", print_json(value), "; expected ", expected);
  }

  const OptionTable& table_;
  const std::string name_;
  std::vector<std::byte> bytes_;
};

// A caller of an older version knows the beginning of the struct.
size_t known_size(const OptionTable& table, size_t size) {
  const size_t smallest = table.fields[0].offset + size_t{table.fields[0].size};
  require(size >= smallest, Status::kInvalidArgument, "size is ", size, "; expected ", table.size, ", the size of ",
          table.name);
  return std::min(size, table.size);
}

}  // namespace

void unset_options(const OptionTable& table, void* options, size_t size) {
  std::vector<std::byte> whole = unset_options(table);
  const size_t written = known_size(table, size);
  std::memcpy(whole.data(), &written, sizeof written);
  std::memcpy(options, whole.data(), written);
}

void options_from_json(const OptionTable& table, const std::string& json, void* options, size_t size) {
  const size_t written = known_size(table, size);
  Writer writer(table, "json");
  writer.write(parse_json(json, "json"));
  std::vector<std::byte> whole = writer.bytes();
  for (const OptionField& field : table)
    require(field.offset + size_t{field.size} <= written || is_unset(field, whole.data()), Status::kInvalidArgument,
            "size is ", size, ", too small for json.", field.name, "; expected ", table.size);
  std::memcpy(whole.data(), &written, sizeof written);
  std::memcpy(options, whole.data(), written);
}

}  // namespace accel
