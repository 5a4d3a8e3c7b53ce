// SPDX-License-Identifier: Apache-2.0
#include "config/precedence.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/environment.hpp"
#include "config/interned_bytes.hpp"

namespace accel {
namespace {

template <typename Value>
void put(const OptionField& field, Value value, void* options) {
  std::memcpy(static_cast<char*>(options) + field.offset, &value, sizeof value);
}

void write_option(const OptionField& field, const std::string& written, void* options) {
  if (field.kind == OptionKind::kText) return put(field, interned_bytes(written), options);
  if (field.kind == OptionKind::kNumber) return put(field, parse_number_option(written), options);
  const int64_t integer = parse_integer_option(field, written);
  if (field.size == sizeof integer) return put(field, integer, options);
  put(field, static_cast<int32_t>(integer), options);
}

}  // namespace

std::optional<OptionText> find_written_option(const OptionTable& table, const OptionField& field,
                                              const ConfigurationFile* file) {
  if (field.variable != nullptr) {
    if (auto value = environment_text(field.variable)) return OptionText{*std::move(value), field.variable};
  }
  if (file == nullptr) return std::nullopt;
  const ConfigurationFile::Entry* const entry = file->find(table, field.name);
  return entry == nullptr ? std::nullopt : std::optional(OptionText{entry->text, entry->place});
}

std::optional<OptionText> find_option_text(const OptionTable& table, const OptionField& field,
                                           const ConfigurationFile* file) {
  const std::optional<OptionText> found = find_written_option(table, field, file);
  if (found) check_option_text(field, found->text, field.name, found->source);
  return found;
}

void resolve_options(const OptionTable& table, void* options) {
  const ConfigurationFile* const file = ConfigurationFile::of_environment();
  for (const OptionField& field : table) {
    if (field.kind == OptionKind::kReserved || !is_unset(field, options)) continue;
    if (const auto found = find_option_text(table, field, file)) write_option(field, found->text, options);
  }
}

void resolve_given_options(const OptionTable& table, void* given, const char* name) {
  std::vector<std::byte> whole = unset_options(table);
  read_options(table, given, name, whole.data());
  resolve_options(table, whole.data());
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  std::memcpy(static_cast<std::byte*>(given) + sizeof size, whole.data() + sizeof size,
              std::min(size, table.size) - sizeof size);
}

}  // namespace accel
