#include "capi/value.hpp"

#include <string>
#include <utility>

#include "accel.h"
#include "base/error.hpp"
#include "capi/buffer.hpp"
#include "capi/guard.hpp"
#include "capi/object.hpp"
#include "capi/value_node.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

accel_value_node& check_map(const accel_value_t* map) {
  check_value(*map, "map");
  require(map->kind == ACCEL_VALUE_MAP, Status::kTypeMismatch, "map is a ", value_kind_name(map->kind),
          "; expected a MAP");
  return *map->as.node;
}

OwnedValue copy_sequence(int32_t kind, const accel_value_t* items, size_t n_items) {
  require(items != nullptr || n_items == 0, Status::kInvalidArgument, "items is NULL; expected ", n_items, " values");
  OwnedValue sequence = container_value(kind);
  sequence.get().as.node->reserve(n_items);
  for (size_t i = 0; i < n_items; i++) sequence.get().as.node->push(copy_value(items[i], "items"));
  return sequence;
}

// A readable container, or null.
const accel_value_node* container_of(const accel_value_t* value) {
  return value != nullptr && is_container(*value) ? value->as.node : nullptr;
}

bool equal_values(const accel_value_t& a, const accel_value_t& b) {
  check_value(a, "a");
  check_value(b, "b");
  if (a.kind != b.kind) return false;
  if (a.kind == ACCEL_VALUE_DTYPE) return a.as.dtype == b.as.dtype;
  if (!is_container(a)) return tree::equal(to_ivalue(a, "a"), to_ivalue(b, "b"));
  const accel_value_node &left = *a.as.node, &right = *b.as.node;
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); i++) {
    const accel_value_t* other = is_sequence(a) ? &right.item(i) : right.find(checked_key(left.key(i)));
    if (other == nullptr || !equal_values(left.item(i), *other)) return false;
  }
  return true;
}

}  // namespace

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
  return guarded(__func__, out, [&] { return copy_sequence(ACCEL_VALUE_LIST, items, n_items); });
}

ACCEL_FUNCTION accel_status_t accel_value_tuple(const accel_value_t* items, size_t n_items, accel_value_t* out) {
  return guarded(__func__, out, [&] { return copy_sequence(ACCEL_VALUE_TUPLE, items, n_items); });
}

ACCEL_FUNCTION accel_status_t accel_value_bytes(const void* data, size_t size, const char* type, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const accel_bytes_t bytes{data, size, type};
    return copy_value(accel_arg_bytes(&bytes), "data");
  });
}

ACCEL_FUNCTION accel_status_t accel_value_int_list(const int64_t* items, size_t n_items, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    require(items != nullptr || n_items == 0, Status::kInvalidArgument, "items is NULL; expected ", n_items,
            " integers");
    OwnedValue list = container_value(ACCEL_VALUE_LIST);
    list.get().as.node->reserve(n_items);
    for (size_t i = 0; i < n_items; i++) list.get().as.node->push(OwnedValue(accel_arg_int(items[i])));
    return list;
  });
}

ACCEL_FUNCTION accel_status_t accel_value_map(accel_value_t* out) {
  return guarded(__func__, out, [&] { return container_value(ACCEL_VALUE_MAP); });
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
    check_map(map).set(map_key(*key), copy_value(*item, "item"));
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
    check_map(map).set(std::string(key), copy_value(*item, "item"));
  });
}

ACCEL_FUNCTION accel_status_t accel_value_push(accel_value_t* list, const accel_value_t* item) {
  return guarded(__func__, [&] {
    check_pointer(list, "list");
    check_pointer(item, "item");
    check_value(*list, "list");
    require(is_sequence(*list), Status::kTypeMismatch, "list is a ", value_kind_name(list->kind),
            "; expected a LIST or a TUPLE");
    list->as.node->push(copy_value(*item, "item"));
  });
}

ACCEL_FUNCTION accel_status_t accel_value_equal(const accel_value_t* a, const accel_value_t* b, int32_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(a, "a");
    check_pointer(b, "b");
    return equal_values(*a, *b) ? 1 : 0;
  });
}

ACCEL_FUNCTION accel_status_t accel_value_to_json(const accel_value_t* value, accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    const c10::IValue tree = to_ivalue(*check_pointer(value, "value"), "value", DtypeForm::kName);
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
