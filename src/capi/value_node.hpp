// Nodes: the memory that an accel_value_t owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "accel.h"

namespace accel::capi {

const char* value_kind_name(int32_t kind);  // "LIST"
bool is_container(const accel_value_t& value);
bool is_sequence(const accel_value_t& value);  // a LIST or TUPLE

// Throws for invalid kinds and values that are incomplete for their kind; does not check the items of containers.
void check_value(const accel_value_t& value, const char* name);

// Owns an accel_value_t. The library stores values beyond a call only in this form.
class OwnedValue {
 public:
  OwnedValue() = default;
  // Takes ownership of the value's content.
  explicit OwnedValue(const accel_value_t& value) : value_(value) {}
  OwnedValue(OwnedValue&& other) noexcept : value_(other.release()) {}
  OwnedValue& operator=(OwnedValue&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~OwnedValue() { accel_value_dispose(&value_); }

  const accel_value_t& get() const { return value_; }
  accel_value_t release() { return std::exchange(value_, accel_value_t ACCEL_VALUE_INIT); }

 private:
  accel_value_t value_ = ACCEL_VALUE_INIT;
};

// A copy that owns everything except its tensors, which are shared. Checks kinds and handles; `name` is the
// parameter's.
OwnedValue copy_value(const accel_value_t& value, const char* name);

OwnedValue string_value(std::string_view text);
OwnedValue bytes_value(std::string_view data, const char* type);
// Throws unless the text is UTF-8; `name` is the parameter's.
void check_text(std::string_view text, const char* name);
OwnedValue container_value(int32_t kind);  // an empty LIST, TUPLE or MAP

// The containers inside a value, itself included.
int value_depth(const accel_value_t& value);

// A key of a map. A text belongs to the value that it was taken from.
using MapKey = std::variant<int64_t, std::string_view>;
MapKey map_key(const accel_value_t& key);      // throws for a value that cannot be one
MapKey checked_key(const accel_value_t& key);  // of one that a map holds

}  // namespace accel::capi

struct accel_value_node {
 public:
  explicit accel_value_node(int32_t kind) : kind_(kind) {}

  int32_t kind() const { return kind_; }
  int depth() const { return depth_; }
  size_t size() const { return items_.size(); }
  const accel_value_t& item(size_t index) const { return items_[index].get(); }
  const accel_value_t& key(size_t index) const { return keys_[index].get(); }
  const accel_value_t* find(const accel::capi::MapKey& key) const;

  void reserve(size_t size);
  // Both throw if values are nested too deeply for other functions.
  void push(accel::capi::OwnedValue item);
  void set(const accel::capi::MapKey& key, accel::capi::OwnedValue item);

 private:
  void enclose(const accel_value_t& item);
  std::optional<size_t> place_of(const accel::capi::MapKey& key) const;

  int32_t kind_;
  int depth_ = 1;
  std::vector<accel::capi::OwnedValue> items_;
  std::vector<accel::capi::OwnedValue> keys_;               // of a map, beside its items
  std::unordered_map<accel::capi::MapKey, size_t> places_;  // of a map with many; a short one is searched faster
};
