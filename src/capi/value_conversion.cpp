#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "capi/handles.hpp"
#include "capi/value.hpp"
#include "capi/value_node.hpp"
#include "tensor/bytes.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

// LibTorch has no value kind for element types.
struct KeptDtype final : torch::CustomClassHolder {
  explicit KeptDtype(accel_dtype_t dtype) : dtype(dtype) {}
  const accel_dtype_t dtype;
};

c10::IValue convert_dtype(accel_dtype_t dtype, DtypeForm form) {
  const c10::ScalarType type = tensor::dtype_from_number(dtype);
  switch (form) {
    case DtypeForm::kInteger:
      return static_cast<int64_t>(type);
    case DtypeForm::kName:
      return std::string(tensor::dtype_name(type));
    case DtypeForm::kKept:
      break;
  }
  return c10::IValue::make_capsule(c10::make_intrusive<KeptDtype>(dtype));
}

OwnedValue convert(const c10::IValue& value, int depth);

// From values of the engine, operators and scripts.
void require_text(const std::string& text, const char* what) {
  const size_t bad = first_bad_byte(text);
  if (bad != text.size())
    fail(Status::kTypeMismatch, what, text[bad] == '\0' ? " contains a NUL" : " is no UTF-8", "; expected text");
}

MapKey convert_key(const c10::IValue& key) {
  if (key.isInt()) return key.toInt();
  if (!key.isString())
    fail(Status::kTypeMismatch, "a map has a key of kind ", tree::kind_name(key), "; expected strings or integers");
  require_text(key.toStringRef(), "a key of a map");
  return key.toStringRef();
}

c10::IValue key_ivalue(const accel_value_t& key) {
  if (key.kind == ACCEL_VALUE_INT) return key.as.integer;
  return std::string(key.as.string);
}

OwnedValue convert_map(const c10::impl::GenericDict& members, int depth) {
  OwnedValue map = container_value(ACCEL_VALUE_MAP);
  map.get().as.node->reserve(members.size());
  for (const auto& member : members) {
    map.get().as.node->set(convert_key(member.key()), convert(member.value(), depth + 1));
  }
  return map;
}

OwnedValue convert_sequence(const c10::IValue& value, int depth) {
  const c10::ArrayRef<c10::IValue> items = tree::sequence_items(value);
  OwnedValue sequence = container_value(value.isTuple() ? ACCEL_VALUE_TUPLE : ACCEL_VALUE_LIST);
  sequence.get().as.node->reserve(items.size());
  for (const c10::IValue& item : items) sequence.get().as.node->push(convert(item, depth + 1));
  return sequence;
}

OwnedValue convert(const c10::IValue& value, int depth) {
  require(depth <= tree::kDeepest, Status::kInvalidArgument, "a value is nested more than ", tree::kDeepest,
          " levels deep");
  if (value.isNone()) return {};
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return {};
    accel_value_t tensor = ACCEL_VALUE_INIT;
    tensor.kind = ACCEL_VALUE_TENSOR;
    tensor.as.tensor = new_tensor(value.toTensor());
    return OwnedValue(tensor);
  }
  if (value.isBool()) return OwnedValue(accel_arg_bool(value.toBool() ? 1 : 0));
  if (value.isInt()) return OwnedValue(accel_arg_int(value.toInt()));
  if (value.isDouble()) return OwnedValue(accel_arg_double(value.toDouble()));
  if (value.isString()) {
    const std::string& text = value.toStringRef();
    require_text(text, "a string");
    return string_value(text);
  }
  if (tree::is_sequence(value)) return convert_sequence(value, depth);
  if (value.isGenericDict()) return convert_map(value.toGenericDict(), depth);
  if (value.isDevice()) {
    const tensor::DeviceNumbers numbers = tensor::device_numbers(value.toDevice());
    return OwnedValue(accel_arg_device({numbers.kind, numbers.index}));
  }
  if (const tree::Bytes* const bytes = tree::bytes_of(value))
    return bytes_value(bytes->data, bytes->type.empty() ? nullptr : bytes->type.c_str());
  if (value.isCapsule())
    if (const auto* kept = dynamic_cast<const KeptDtype*>(value.toCapsule().get()))
      return OwnedValue(accel_arg_dtype(kept->dtype));
  fail(Status::kTypeMismatch, "a value of kind ", tree::kind_name(value),
       " cannot leave the library; expected tensors, numbers, strings, bytes, devices, lists, tuples and maps");
}

}  // namespace

c10::IValue to_ivalue(const accel_value_t& value, const char* name, DtypeForm form) {
  check_value(value, name);
  switch (value.kind) {
    case ACCEL_VALUE_BOOL:
      return value.as.integer != 0;
    case ACCEL_VALUE_INT:
      return value.as.integer;
    case ACCEL_VALUE_DOUBLE:
      return value.as.number;
    case ACCEL_VALUE_STRING:
      return std::string(value.as.string);
    case ACCEL_VALUE_TENSOR:
      return value.as.tensor->tensor;
    case ACCEL_VALUE_DTYPE:
      return convert_dtype(value.as.dtype, form);
    case ACCEL_VALUE_DEVICE:
      return tensor::device_from_numbers({value.as.device.type, value.as.device.index});
    case ACCEL_VALUE_BYTES: {
      const accel_bytes_t& bytes = *value.as.bytes;
      return tree::bytes_value(std::string(static_cast<const char*>(bytes.data), bytes.size),
                               bytes.type == nullptr ? "" : bytes.type);
    }
    case ACCEL_VALUE_LIST: {
      const accel_value_node& node = *value.as.node;
      c10::List<c10::IValue> items = tree::new_list();
      items.reserve(node.size());
      for (size_t i = 0; i < node.size(); i++) items.push_back(to_ivalue(node.item(i), name, form));
      return items;
    }
    case ACCEL_VALUE_TUPLE: {
      const accel_value_node& node = *value.as.node;
      std::vector<c10::IValue> items;
      items.reserve(node.size());
      for (size_t i = 0; i < node.size(); i++) items.push_back(to_ivalue(node.item(i), name, form));
      return tree::new_tuple(std::move(items));
    }
    case ACCEL_VALUE_MAP: {
      const accel_value_node& node = *value.as.node;
      std::vector<std::pair<c10::IValue, c10::IValue>> members;
      members.reserve(node.size());
      for (size_t i = 0; i < node.size(); i++)
        members.emplace_back(key_ivalue(node.key(i)), to_ivalue(node.item(i), name, form));
      return tree::new_map(std::move(members));
    }
    default:
      return {};
  }
}

std::vector<c10::IValue> to_ivalues(const accel_value_t* values, size_t count, const char* name) {
  require(values != nullptr || count == 0, Status::kInvalidArgument, name, " is NULL; expected ", count, " values");
  std::vector<c10::IValue> converted;
  converted.reserve(count);
  for (size_t i = 0; i < count; i++) converted.push_back(to_ivalue(values[i], name));
  return converted;
}

accel_value_t from_ivalue(const c10::IValue& value) { return convert(value, 0).release(); }

accel_tensor_t* new_tensor(at::Tensor tensor) { return std::make_unique<accel_tensor>(std::move(tensor)).release(); }

}  // namespace accel::capi
