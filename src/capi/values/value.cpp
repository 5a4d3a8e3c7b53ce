// SPDX-License-Identifier: Apache-2.0
#include "capi/values/value.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/value_node.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

// The container of a value that the caller owns, for a change: other values that share it keep what it holds.
accel_value_node& own_node(accel_value_t& value) {
  if (value.as.node->has_other_owners())
    OwnedValue former(std::exchange(value, container_value(value.as.node->container()).release()));
  return *value.as.node;
}

accel_value_node& check_map(accel_value_t* map) {
  check_value(*map, "map");
  require(map->kind == ACCEL_VALUE_MAP, Status::kTypeMismatch, "map is a ", value_kind_name(map->kind),
          "; expected a MAP");
  return own_node(*map);
}

// Within the depth that every function on values can follow.
OwnedValue new_sequence(int32_t kind, const accel_value_t* items, size_t n_items) {
  std::vector<c10::IValue> made = to_ivalues(items, n_items, "items");
  for (const c10::IValue& item : made) check_nesting(item);
  if (kind == ACCEL_VALUE_TUPLE) return container_value(tree::new_tuple(std::move(made)));
  return container_value(tree::new_list(std::move(made)));
}

c10::IValue key_value(const MapKey& key) {
  if (const auto* const number = std::get_if<int64_t>(&key)) return *number;
  return std::string(std::get<std::string_view>(key));
}

// A readable container, or null.
const accel_value_node* container_of(const accel_value_t* value) {
  return value != nullptr && is_container(*value) ? value->as.node : nullptr;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_value_int(int64_t integer, accel_value_t* out) {
  return guarded(__func__, out, [&] { return accel_arg_int(integer); });
}

ACCEL_FUNCTION accel_status_t accel_value_double(double number, accel_value_t* out) {
  return guarded(__func__, out, [&] { return accel_arg_double(number); });
}

ACCEL_FUNCTION accel_status_t accel_value_dtype(accel_dtype_t dtype, accel_value_t* out) {
  return guarded(__func__, out, [&] { return copy_value(accel_arg_dtype(dtype), "dtype"); });
}

ACCEL_FUNCTION accel_status_t accel_value_device(const accel_device_t* device, accel_value_t* out) {
  return guarded(__func__, out,
                 [&] { return copy_value(accel_arg_device(check_pointer(device, "device")), "device"); });
}

ACCEL_FUNCTION accel_status_t accel_value_string(const char* text, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_text(check_pointer(text, "text"), "text");
    return string_value(text);
  });
}

ACCEL_FUNCTION accel_status_t accel_value_tensor(accel_tensor_t* tensor, accel_value_t* out) {
  return guarded(__func__, out, [&] { return copy_value(accel_arg_tensor(tensor), "tensor"); });
}

ACCEL_FUNCTION accel_status_t accel_value_list(const accel_value_t* items, size_t n_items, accel_value_t* out) {
  return guarded(__func__, out, [&] { return new_sequence(ACCEL_VALUE_LIST, items, n_items); });
}

ACCEL_FUNCTION accel_status_t accel_value_tuple(const accel_value_t* items, size_t n_items, accel_value_t* out) {
  return guarded(__func__, out, [&] { return new_sequence(ACCEL_VALUE_TUPLE, items, n_items); });
}

ACCEL_FUNCTION accel_status_t accel_value_bytes(const void* data, size_t size, const char* type, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const accel_bytes_t bytes{data, size, type};
    return copy_value(accel_arg_bytes(&bytes), "data");
  });
}

ACCEL_FUNCTION accel_status_t accel_value_int_list(const int64_t* items, size_t n_items, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_array(items, n_items, "items");
    auto list = tree::new_list();
    list.reserve(n_items);
    for (size_t i = 0; i < n_items; i++) list.push_back(items[i]);
    return container_value(list);
  });
}

ACCEL_FUNCTION accel_status_t accel_value_map(accel_value_t* out) {
  return guarded(__func__, out, [&] { return container_value(tree::new_map()); });
}

ACCEL_FUNCTION accel_status_t accel_value_copy(const accel_value_t* value, accel_value_t* out) {
  return guarded(__func__, out, [&] { return copy_value(*check_pointer(value, "value"), "value"); });
}

ACCEL_FUNCTION size_t accel_value_count(const accel_value_t* value) {
  return guarded_value<size_t>(__func__, 0, [&] {
    const accel_value_node* node = container_of(check_pointer(value, "value"));
    return node == nullptr ? 0 : node->size();
  });
}

ACCEL_FUNCTION const accel_value_t* accel_value_at(const accel_value_t* value, size_t index) {
  return guarded_value<const accel_value_t*>(__func__, nullptr, [&] {
    const accel_value_node* node = container_of(check_pointer(value, "value"));
    return node == nullptr || index >= node->size() ? nullptr : &node->item(index);
  });
}

ACCEL_FUNCTION const char* accel_value_key(const accel_value_t* map, size_t index) {
  return guarded_value<const char*>(__func__, nullptr, [&] {
    const accel_value_node* node = container_of(check_pointer(map, "map"));
    const bool there = node != nullptr && map->kind == ACCEL_VALUE_MAP && index < node->size();
    return there && node->key(index).kind == ACCEL_VALUE_STRING ? node->key(index).as.string : nullptr;
  });
}

ACCEL_FUNCTION const accel_value_t* accel_value_key_at(const accel_value_t* map, size_t index) {
  return guarded_value<const accel_value_t*>(__func__, nullptr, [&] {
    const accel_value_node* node = container_of(check_pointer(map, "map"));
    const bool there = node != nullptr && map->kind == ACCEL_VALUE_MAP && index < node->size();
    return there ? &node->key(index) : nullptr;
  });
}

ACCEL_FUNCTION const accel_value_t* accel_value_find(const accel_value_t* map, const accel_value_t* key) {
  return guarded_value<const accel_value_t*>(__func__, nullptr, [&] {
    const accel_value_node* node = container_of(check_pointer(map, "map"));
    const MapKey wanted = map_key(*check_pointer(key, "key"));
    return node == nullptr ? nullptr : node->find(wanted);
  });
}

ACCEL_FUNCTION accel_status_t accel_value_put(accel_value_t* map, const accel_value_t* key, const accel_value_t* item) {
  return guarded(__func__, [&] {
    check_pointer(map, "map");
    check_pointer(key, "key");
    check_pointer(item, "item");
    const c10::IValue name = key_value(map_key(*key));
    const c10::IValue value = to_ivalue(*item, "item");  // ahead: it may share the container
    check_map(map).set(name, value);
  });
}

ACCEL_FUNCTION const accel_value_t* accel_value_get(const accel_value_t* map, const char* key) {
  return guarded_value<const accel_value_t*>(__func__, nullptr, [&] {
    const accel_value_node* node = container_of(check_pointer(map, "map"));
    check_pointer(key, "key");
    return node == nullptr ? nullptr : node->find(std::string_view(key));
  });
}

ACCEL_FUNCTION accel_status_t accel_value_set(accel_value_t* map, const char* key, const accel_value_t* item) {
  return guarded(__func__, [&] {
    check_pointer(map, "map");
    check_text(check_pointer(key, "key"), "key");
    check_pointer(item, "item");
    const c10::IValue value = to_ivalue(*item, "item");  // ahead: it may share the container
    check_map(map).set(std::string(key), value);
  });
}

ACCEL_FUNCTION accel_status_t accel_value_push(accel_value_t* list, const accel_value_t* item) {
  return guarded(__func__, [&] {
    check_pointer(list, "list");
    check_pointer(item, "item");
    check_value(*list, "list");
    require(is_sequence(*list), Status::kTypeMismatch, "list is a ", value_kind_name(list->kind),
            "; expected a LIST or a TUPLE");
    const c10::IValue value = to_ivalue(*item, "item");  // ahead: it may share the container
    own_node(*list).push(value);
  });
}

ACCEL_FUNCTION accel_status_t accel_value_equal(const accel_value_t* a, const accel_value_t* b, int32_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(a, "a");
    check_pointer(b, "b");
    const c10::IValue left = to_ivalue(*a, "a"), right = to_ivalue(*b, "b");
    return tree::equal(left, right) ? 1 : 0;
  });
}

ACCEL_FUNCTION accel_status_t accel_value_to_json(const accel_value_t* value, accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    const c10::IValue tree = to_ivalue(*check_pointer(value, "value"), "value");
    return new_buffer(tree::to_json(tree));
  });
}

ACCEL_FUNCTION accel_status_t accel_value_from_json(const char* json, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_text(check_pointer(json, "json"), "json");
    return from_ivalue(tree::from_json(json, "json"));
  });
}

}  // namespace accel::capi
