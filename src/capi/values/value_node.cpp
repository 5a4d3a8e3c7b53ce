// SPDX-License-Identifier: Apache-2.0
#include "capi/values/value_node.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "capi/calls/handles.hpp"
#include "tensor/bytes.hpp"
#include "tensor/device/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

constexpr size_t kMostSearched = 8;  // keys that are compared one by one

MapKey key_of(const accel_value_t& key) {
  if (key.kind == ACCEL_VALUE_INT) return key.as.integer;
  return key.as.string;
}

// The containers inside a value, itself included.
int depth_of(const c10::IValue& value) {
  int deepest = 0;
  if (tree::is_sequence(value)) {
    for (const c10::IValue& item : tree::sequence_items(value)) deepest = std::max(deepest, depth_of(item));
  } else if (value.isGenericDict()) {
    for (const auto& member : value.toGenericDict()) deepest = std::max(deepest, depth_of(member.value()));
  } else {
    return 0;
  }
  return deepest + 1;
}

// TorchScript asks for it.
void fit_key_type(c10::impl::GenericDict& map, const c10::IValue& key) {
  const c10::TypePtr type = key.isInt() ? c10::TypePtr(c10::IntType::get()) : c10::TypePtr(c10::StringType::get());
  if (map.empty())
    map.unsafeSetKeyType(type);
  else if (map.keyType()->kind() != type->kind())
    map.unsafeSetKeyType(c10::AnyType::get());
}

}  // namespace

void check_nesting(const c10::IValue& item) {
  const int depth = depth_of(item) + 1;
  require(depth <= tree::kDeepest, Status::kInvalidArgument, "the value would be nested ", depth,
          " levels deep; expected at most ", tree::kDeepest);
}

accel_value_t new_container(c10::IValue container) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.as.node = std::make_unique<accel_value_node>(std::move(container)).release();
  value.kind = value.as.node->kind();
  return value;
}

accel_value_t borrowed_value(const c10::IValue& item) {
  accel_value_t value = ACCEL_VALUE_INIT;
  if (item.isTensor()) {
    if (!item.toTensor().defined()) return value;
    value.as.tensor = std::make_unique<accel_tensor>(item.toTensor()).release();
    value.kind = ACCEL_VALUE_TENSOR;
    return value;
  }
  if (item.isInt()) return accel_arg_int(item.toInt());
  if (item.isDouble()) return accel_arg_double(item.toDouble());
  if (item.isString()) return accel_arg_string(item.toStringRef().c_str());
  if (item.isBool()) return accel_arg_bool(item.toBool() ? 1 : 0);
  if (tree::is_sequence(item) || item.isGenericDict()) return new_container(item);
  if (item.isDevice()) {
    const tensor::DeviceNumbers numbers = tensor::device_numbers(item.toDevice());
    const accel_device_t device = {numbers.kind, numbers.index};
    return accel_arg_device(&device);
  }
  if (const tree::Bytes* const bytes = tree::bytes_of(item))
    return accel_arg_bytes(std::make_unique<accel_bytes_t>(
                               accel_bytes_t{bytes->data.empty() ? nullptr : bytes->data.data(), bytes->data.size(),
                                             bytes->type.empty() ? nullptr : bytes->type.c_str()})
                               .release());
  if (const auto dtype = tree::dtype_of(item)) return accel_arg_dtype(tensor::dtype_number(*dtype));
  return value;
}

void end_borrowed(const accel_value_t& item) {
  if (item.kind == ACCEL_VALUE_STRING) return;
  if (item.kind == ACCEL_VALUE_BYTES) return std::unique_ptr<const accel_bytes_t>(item.as.bytes).reset();
  accel_value_t ended = item;
  accel_value_dispose(&ended);
}

}  // namespace accel::capi

// Texts belong to the container.
struct accel_value_node::Items {
  Items() = default;
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;
  ~Items() {
    for (accel_value_t& item : items) accel::capi::end_borrowed(item);
  }

  void reserve(size_t size, bool has_keys) {
    items.reserve(size);
    if (has_keys) keys.reserve(size);
  }
  void add(const c10::IValue& item) {
    items.push_back(accel_arg_none());  // ahead: what the item owns would be lost without room for it
    items.back() = accel::capi::borrowed_value(item);
  }
  void add(const c10::IValue& key, const c10::IValue& item) {
    keys.push_back(accel::capi::borrowed_value(key));
    add(item);
    const size_t size = keys.size();
    if (size <= accel::capi::kMostSearched) return;
    for (size_t i = places.size(); i < size; i++) places.emplace(accel::capi::key_of(keys[i]), i);
  }

  void set(const c10::IValue& key, const c10::IValue& item) {
    const auto place = place_of(accel::capi::key_of(accel::capi::borrowed_value(key)));
    if (!place) return add(key, item);
    const accel_value_t made = accel::capi::borrowed_value(item);
    accel::capi::end_borrowed(items[*place]);
    items[*place] = made;
  }

  std::optional<size_t> place_of(const accel::capi::MapKey& key) const {
    if (keys.size() > accel::capi::kMostSearched) {
      const auto place = places.find(key);
      return place == places.end() ? std::nullopt : std::optional<size_t>(place->second);
    }
    const auto found =
        std::find_if(keys.begin(), keys.end(), [&key](const auto& own) { return accel::capi::key_of(own) == key; });
    if (found == keys.end()) return std::nullopt;
    return static_cast<size_t>(found - keys.begin());
  }

  std::vector<accel_value_t> items;
  std::vector<accel_value_t> keys;                         // of a map, beside its items
  std::unordered_map<accel::capi::MapKey, size_t> places;  // of a map with many; a short one is searched faster
};

accel_value_node::accel_value_node(c10::IValue container) : container_(std::move(container)) {}

accel_value_node::~accel_value_node() { std::unique_ptr<Items>(items_.load(std::memory_order_acquire)).reset(); }

int32_t accel_value_node::kind() const {
  if (container_.isTuple()) return ACCEL_VALUE_TUPLE;
  return container_.isGenericDict() ? ACCEL_VALUE_MAP : ACCEL_VALUE_LIST;
}

size_t accel_value_node::size() const {
  return container_.isGenericDict() ? container_.toGenericDict().size()
                                    : accel::tree::sequence_items(container_).size();
}

// Threads that come here at once each make them; those of the first stay.
const accel_value_node::Items& accel_value_node::items() const {
  if (const Items* const made = items_.load(std::memory_order_acquire)) return *made;
  auto made = std::make_unique<Items>();
  made->reserve(size(), container_.isGenericDict());
  if (container_.isGenericDict()) {
    for (const auto& member : container_.toGenericDict()) made->add(member.key(), member.value());
  } else {
    for (const c10::IValue& item : accel::tree::sequence_items(container_)) made->add(item);
  }
  Items* first = nullptr;
  return items_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel) ? *made.release() : *first;
}

const accel_value_t& accel_value_node::item(size_t index) const { return items().items[index]; }

const accel_value_t& accel_value_node::key(size_t index) const { return items().keys[index]; }

const accel_value_t* accel_value_node::find(const accel::capi::MapKey& key) const {
  const auto place = items().place_of(key);
  return place ? &items().items[*place] : nullptr;
}

// Containers of scripts have an element type, which the copy has not.
void accel_value_node::own_container() {
  if (container_.isTuple()) return;  // replaced as a whole
  if (container_.isGenericDict()) {
    const c10::impl::GenericDict map = container_.toGenericDict();
    if (container_.use_count() == 2 && map.valueType()->kind() == c10::TypeKind::AnyType) return;  // `map` is the other
    c10::impl::GenericDict copy(map.keyType(), c10::AnyType::get());
    copy.reserve(map.size());
    for (const auto& member : map) copy.insert(member.key(), member.value());
    container_ = copy;
    return;
  }
  const c10::List<c10::IValue> list = container_.toList();
  if (container_.use_count() == 2 && list.elementType()->kind() == c10::TypeKind::AnyType) return;  // `list` is
  container_ = accel::tree::sequence_like(container_, accel::tree::sequence_items(container_).vec());
}

// `note` adds to the items that were read what has changed.
template <typename Note>
void accel_value_node::note_change(const Note& note) {
  Items* const read = items_.load(std::memory_order_acquire);
  if (read == nullptr) return;
  try {
    note(*read);
  } catch (...) {  // they are made again when they are read
    std::unique_ptr<Items>(items_.exchange(nullptr, std::memory_order_acq_rel)).reset();
  }
}

void accel_value_node::push(const c10::IValue& item) {
  accel::capi::check_nesting(item);
  own_container();
  if (container_.isTuple()) {
    std::vector<c10::IValue> all = accel::tree::sequence_items(container_).vec();
    all.push_back(item);
    container_ = accel::tree::new_tuple(std::move(all));
  } else {
    container_.toList().push_back(item);
  }
  note_change([&](Items& read) { read.add(item); });
}

void accel_value_node::set(const c10::IValue& key, const c10::IValue& item) {
  accel::capi::check_nesting(item);
  own_container();
  c10::impl::GenericDict map = container_.toGenericDict();
  accel::capi::fit_key_type(map, key);
  map.insert_or_assign(key, item);
  note_change([&](Items& read) { read.set(key, item); });
}
