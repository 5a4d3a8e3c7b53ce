// SPDX-License-Identifier: Apache-2.0
// Section 15: configuration.
#include <ATen/core/Dict.h>

#include <string>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/options.hpp"
#include "capi/values/value.hpp"
#include "config/option_json.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

c10::IValue text_or_none(const char* text) { return text == nullptr ? c10::IValue() : c10::IValue(std::string(text)); }

c10::impl::GenericDict describe_option(const OptionField& field) {
  auto map = tree::new_map();
  const auto add = [&map](const char* name, c10::IValue value) { map.insert(std::string(name), std::move(value)); };
  add("name", std::string(field.name));
  add("kind", std::string(option_kind_name(field.kind)));
  add("doc", std::string(field.doc));
  add("variable", text_or_none(field.variable));
  add("default", text_or_none(field.default_value));
  add("required", field.required);
  if (field.kind == OptionKind::kInteger || field.kind == OptionKind::kNumber) {
    add("low", field.interval.low);
    add("high", field.interval.high);
    add("open_low", field.interval.open_low);
    add("open_high", field.interval.open_high);
  }
  if (field.kind == OptionKind::kChoice) {
    auto choices = tree::new_map();
    for (size_t i = 0; i < field.num_choices; ++i)
      choices.insert(std::string(field.choices[i].name), int64_t{field.choices[i].value});
    add("choices", choices);
  }
  add("offset", int64_t{field.offset});
  add("size", int64_t{field.size});
  return map;
}

}  // namespace

ACCEL_FUNCTION const char* accel_options_name(size_t index) {
  const OptionTables tables = all_option_tables();
  return index < tables.size ? tables.tables[index]->name : nullptr;
}

ACCEL_FUNCTION accel_status_t accel_options_describe(const char* type, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    auto fields = tree::new_list();
    for (const OptionField& field : find_option_table(check_pointer(type, "type")))
      if (field.kind != OptionKind::kReserved) fields.push_back(describe_option(field));  // padding is not set
    return from_ivalue(fields);
  });
}

ACCEL_FUNCTION accel_status_t accel_options_check(const char* type, const void* options) {
  return guarded(__func__, [&] {
    check_pointer(options, "options");
    check_options(find_option_table(check_pointer(type, "type")), options, "options");
  });
}

ACCEL_FUNCTION accel_status_t accel_options_init(const char* type, void* options, size_t size) {
  return guarded(__func__, [&] {
    check_pointer(options, "options");
    unset_options(find_option_table(check_pointer(type, "type")), options, size);
  });
}

ACCEL_FUNCTION accel_status_t accel_options_resolve(const char* type, void* options) {
  return guarded(__func__, [&] {
    check_pointer(options, "options");
    resolve_given_options(find_option_table(check_pointer(type, "type")), options, "options");
  });
}

ACCEL_FUNCTION accel_status_t accel_options_from_json(const char* type, const char* json, void* options, size_t size) {
  return guarded(__func__, [&] {
    check_pointer(options, "options");
    check_pointer(json, "json");
    options_from_json(find_option_table(check_pointer(type, "type")), json, options, size);
  });
}

}  // namespace accel::capi
