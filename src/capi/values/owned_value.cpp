// SPDX-License-Identifier: Apache-2.0
#include "capi/values/owned_value.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/values/value_node.hpp"
#include "tensor/device/device.hpp"
#include "tensor/dtype.hpp"

namespace accel::capi {

const char* value_kind_name(int32_t kind) {
  switch (kind) {
    case ACCEL_VALUE_NONE:
      return "NONE";
    case ACCEL_VALUE_BOOL:
      return "BOOL";
    case ACCEL_VALUE_INT:
      return "INT";
    case ACCEL_VALUE_DOUBLE:
      return "DOUBLE";
    case ACCEL_VALUE_STRING:
      return "STRING";
    case ACCEL_VALUE_TENSOR:
      return "TENSOR";
    case ACCEL_VALUE_LIST:
      return "LIST";
    case ACCEL_VALUE_MAP:
      return "MAP";
    case ACCEL_VALUE_DTYPE:
      return "DTYPE";
    case ACCEL_VALUE_DEVICE:
      return "DEVICE";
    case ACCEL_VALUE_TUPLE:
      return "TUPLE";
    case ACCEL_VALUE_BYTES:
      return "BYTES";
    default:
      return "value of unknown kind";
  }
}

bool is_sequence(const accel_value_t& value) {
  return value.kind == ACCEL_VALUE_LIST || value.kind == ACCEL_VALUE_TUPLE;
}

void check_text(std::string_view text, const char* name) {
  const size_t bad = first_bad_byte(text);
  if (bad == text.size()) return;
  fail(Status::kInvalidArgument, name, " is not UTF-8: byte ", bad, " is ", int{static_cast<unsigned char>(text[bad])},
       "; expected text in UTF-8; bytes have a kind of their own, accel_value_bytes()");
}

bool is_container(const accel_value_t& value) { return is_sequence(value) || value.kind == ACCEL_VALUE_MAP; }

void check_value(const accel_value_t& value, const char* name) {
  switch (value.kind) {
    case ACCEL_VALUE_NONE:
    case ACCEL_VALUE_BOOL:
    case ACCEL_VALUE_INT:
    case ACCEL_VALUE_DOUBLE:
      return;
    case ACCEL_VALUE_STRING:
      require(value.as.string != nullptr, Status::kInvalidArgument, name, " is a STRING whose text is NULL");
      check_text(value.as.string, name);
      return;
    case ACCEL_VALUE_TENSOR:
      check(value.as.tensor, name);
      return;
    case ACCEL_VALUE_BYTES:
      require(value.as.bytes != nullptr && (value.as.bytes->data != nullptr || value.as.bytes->size == 0),
              Status::kInvalidArgument, name, " is BYTES whose data is NULL");
      return;
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_TUPLE:
    case ACCEL_VALUE_MAP:
      require(value.as.node != nullptr && value.as.node->kind() == value.kind, Status::kInvalidHandle, name,
              " is not a container of this library; make it with accel_value_list(), accel_value_tuple() or "
              "accel_value_map()");
      return;
    case ACCEL_VALUE_DTYPE:
      tensor::dtype_from_number(value.as.dtype);
      return;
    case ACCEL_VALUE_DEVICE:
      tensor::device_from_numbers({value.as.device.type, value.as.device.index});
      return;
    default:
      fail(Status::kInvalidArgument, name, ".kind is ", value.kind,
           "; expected ACCEL_VALUE_NONE (0) to ACCEL_VALUE_BYTES (11)");
  }
}

OwnedValue string_value(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_STRING;
  value.as.string = copy;
  return OwnedValue(value);
}

// One block of memory: what accel_value_t points to, the bytes, the type.
OwnedValue bytes_value(std::string_view data, const char* type) {
  const size_t type_size = type == nullptr ? 0 : std::strlen(type) + 1;
  auto* const memory = static_cast<char*>(std::malloc(sizeof(accel_bytes_t) + data.size() + type_size));
  if (memory == nullptr) throw std::bad_alloc();
  char* const own_data = memory + sizeof(accel_bytes_t);
  if (!data.empty()) std::memcpy(own_data, data.data(), data.size());
  if (type != nullptr) std::memcpy(own_data + data.size(), type, type_size);
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_BYTES;
  value.as.bytes = new (memory)
      accel_bytes_t{data.empty() ? nullptr : own_data, data.size(), type == nullptr ? nullptr : own_data + data.size()};
  return OwnedValue(value);
}

OwnedValue container_value(c10::IValue container) { return OwnedValue(new_container(std::move(container))); }

MapKey map_key(const accel_value_t& key) {
  check_value(key, "key");
  require(key.kind == ACCEL_VALUE_INT || key.kind == ACCEL_VALUE_STRING, Status::kTypeMismatch, "key is a ",
          value_kind_name(key.kind), "; expected a STRING or an INT");
  if (key.kind == ACCEL_VALUE_INT) return key.as.integer;
  return key.as.string;
}

OwnedValue copy_value(const accel_value_t& value, const char* name) {
  check_value(value, name);
  switch (value.kind) {
    case ACCEL_VALUE_STRING:
      return string_value(value.as.string);
    case ACCEL_VALUE_BYTES: {
      const accel_bytes_t& bytes = *value.as.bytes;
      return bytes_value({static_cast<const char*>(bytes.data), bytes.size}, bytes.type);
    }
    case ACCEL_VALUE_TENSOR:
      value.as.tensor->retain();
      return OwnedValue(value);
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_TUPLE:
    case ACCEL_VALUE_MAP:
      value.as.node->retain();
      return OwnedValue(value);
    default:
      return OwnedValue(value);
  }
}

}  // namespace accel::capi

void accel_value_dispose(accel_value_t* value) {
  if (value == nullptr) return;
  const accel_value_t given = *value;
  *value = ACCEL_VALUE_INIT;
  switch (given.kind) {
    case ACCEL_VALUE_STRING:
      std::free(const_cast<char*>(given.as.string));
      break;
    case ACCEL_VALUE_TENSOR:
      accel::capi::release_handle(given.as.tensor);
      break;
    case ACCEL_VALUE_BYTES:
      std::free(const_cast<accel_bytes_t*>(given.as.bytes));
      break;
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_TUPLE:
    case ACCEL_VALUE_MAP:
      if (given.as.node->release()) std::unique_ptr<accel_value_node>(given.as.node).reset();
      break;
    default:
      break;
  }
}
