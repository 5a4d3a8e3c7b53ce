#include "capi/value_node.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "capi/handles.hpp"
#include "capi/object.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

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
    default:
      return "value of unknown kind";
  }
}

void check_text(std::string_view text, const char* name) {
  const size_t bad = first_bad_byte(text, TextKind::kPlain);
  if (bad == text.size()) return;
  fail(Status::kInvalidArgument, name, " is no UTF-8: byte ", bad, " is ", int{static_cast<unsigned char>(text[bad])},
       "; expected text in UTF-8; bytes travel as a uint8 tensor");
}

bool is_container(const accel_value_t& value) {
  return value.kind == ACCEL_VALUE_LIST || value.kind == ACCEL_VALUE_MAP;
}

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
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_MAP:
      require(value.as.node != nullptr && value.as.node->kind() == value.kind, Status::kInvalidHandle, name,
              " is no container of this library; make it with accel_value_list() or accel_value_map()");
      return;
    case ACCEL_VALUE_DTYPE:
      tensor::dtype_from_number(value.as.dtype);
      return;
    case ACCEL_VALUE_DEVICE:
      tensor::device_from_numbers({value.as.device.type, value.as.device.index});
      return;
    default:
      fail(Status::kInvalidArgument, name, ".kind is ", value.kind,
           "; expected ACCEL_VALUE_NONE (0) to ACCEL_VALUE_DEVICE (9)");
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

OwnedValue container_value(int32_t kind) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = kind;
  value.as.node = std::make_unique<accel_value_node>(kind).release();
  return OwnedValue(value);
}

int value_depth(const accel_value_t& value) { return is_container(value) ? value.as.node->depth() : 0; }

OwnedValue copy_value(const accel_value_t& value, const char* name) {
  check_value(value, name);
  switch (value.kind) {
    case ACCEL_VALUE_STRING:
      return string_value(value.as.string);
    case ACCEL_VALUE_TENSOR:
      value.as.tensor->retain();
      return OwnedValue(value);
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_MAP:
      break;
    default:
      return OwnedValue(value);
  }
  OwnedValue copy = container_value(value.kind);
  const accel_value_node& from = *value.as.node;
  accel_value_node& to = *copy.get().as.node;
  to.reserve(from.size());
  for (size_t i = 0; i < from.size(); i++) {
    OwnedValue item = copy_value(from.item(i), name);
    if (value.kind == ACCEL_VALUE_LIST)
      to.push(std::move(item));
    else
      to.set(from.key(i), std::move(item));
  }
  return copy;
}

}  // namespace accel::capi

const accel_value_t* accel_value_node::find(const std::string& key) const {
  const auto place = places_.find(key);
  return place == places_.end() ? nullptr : &items_[place->second].get();
}

void accel_value_node::enclose(const accel_value_t& item) {
  const int depth = accel::capi::value_depth(item) + 1;
  accel::require(depth <= accel::tree::kDeepest, accel::Status::kInvalidArgument, "the value would be nested ", depth,
                 " levels deep; expected at most ", accel::tree::kDeepest);
  depth_ = std::max(depth_, depth);
}

void accel_value_node::push(accel::capi::OwnedValue item) {
  enclose(item.get());
  items_.push_back(std::move(item));
}

void accel_value_node::set(const std::string& key, accel::capi::OwnedValue item) {
  enclose(item.get());
  if (const auto place = places_.find(key); place != places_.end()) {
    items_[place->second] = std::move(item);
    return;
  }
  items_.emplace_back();
  try {
    keys_.push_back(key);
    places_.emplace(key, items_.size() - 1);
  } catch (...) {
    items_.pop_back();
    keys_.resize(items_.size());
    throw;
  }
  items_.back() = std::move(item);
}

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
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_MAP:
      std::unique_ptr<accel_value_node>(given.as.node).reset();
      break;
    default:
      break;
  }
}
