// SPDX-License-Identifier: Apache-2.0
#include "tensor/parameter.hpp"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "tensor/device/device.hpp"
#include "tensor/dtype.hpp"

namespace accel::tensor {
namespace {

using Kind = Argument::Kind;

constexpr std::pair<std::string_view, c10::Layout> kLayouts[] = {
    {"strided", c10::Layout::Strided},      {"sparse_coo", c10::Layout::Sparse},
    {"sparse_csr", c10::Layout::SparseCsr}, {"sparse_csc", c10::Layout::SparseCsc},
    {"sparse_bsr", c10::Layout::SparseBsr}, {"sparse_bsc", c10::Layout::SparseBsc},
    {"jagged", c10::Layout::Jagged},
};

constexpr std::pair<std::string_view, c10::MemoryFormat> kMemoryFormats[] = {
    {"contiguous_format", c10::MemoryFormat::Contiguous},
    {"preserve_format", c10::MemoryFormat::Preserve},
    {"channels_last", c10::MemoryFormat::ChannelsLast},
    {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d},
};

template <typename Names>
auto find_name(const Names& names, std::string_view name) {
  return std::find_if(std::begin(names), std::end(names), [&](const auto& member) { return member.first == name; });
}

// Pushes the number of an enumeration's member, which is how the dispatcher wants it.
template <typename Names>
bool push_named(const Names& names, const Argument& given, torch::jit::Stack& stack) {
  const auto found = given.kind() == Kind::kString ? find_name(names, given.as_string()) : std::end(names);
  if (found == std::end(names)) return false;
  stack.emplace_back(static_cast<int64_t>(found->second));
  return true;
}

bool push_dtype(const Argument& given, torch::jit::Stack& stack) {
  if (given.kind() == Kind::kDtype) {
    stack.emplace_back(static_cast<int64_t>(given.as_dtype()));
    return true;
  }
  if (given.kind() != Kind::kString) return false;
  const Dtype* const dtype = find_dtype(std::string_view(given.as_string()));
  if (dtype != nullptr) stack.emplace_back(static_cast<int64_t>(dtype->type));
  return dtype != nullptr;
}

bool push_device(const Argument& given, torch::jit::Stack& stack) {
  if (given.kind() == Kind::kDevice) {
    stack.emplace_back(given.as_device());
    return true;
  }
  if (given.kind() != Kind::kString) return false;
  const std::optional<c10::Device> device = find_device(given.as_string());
  if (device) stack.emplace_back(*device);
  return device.has_value();
}

// The type of a list's items on the stack: symbolic numbers and enumerations are passed as integers.
c10::TypePtr stack_type(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return c10::IntType::get();
    case c10::TypeKind::SymFloatType:
      return c10::FloatType::get();
    case c10::TypeKind::SymBoolType:
      return c10::BoolType::get();
    default:
      return type;
  }
}

}  // namespace

Parameter::Type Parameter::type_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Type::kTensor;
    case c10::TypeKind::NumberType:
      return Type::kScalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return Type::kInteger;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return Type::kNumber;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return Type::kBool;
    case c10::TypeKind::StringType:
      return Type::kString;
    case c10::TypeKind::ScalarTypeType:
      return Type::kDtype;
    case c10::TypeKind::LayoutType:
      return Type::kLayout;
    case c10::TypeKind::MemoryFormatType:
      return Type::kMemoryFormat;
    case c10::TypeKind::DeviceObjType:
      return Type::kDevice;
    default:
      return Type::kOther;
  }
}

Parameter::Parameter(const c10::Argument& argument) : argument_(&argument) {
  c10::TypePtr type = argument.real_type();
  const auto strip_optional = [&type] {
    const auto optional = type->cast<c10::OptionalType>();
    if (optional) type = optional->getElementType();
    return optional != nullptr;
  };
  is_optional_ = strip_optional();
  if (const auto list = type->cast<c10::ListType>()) {
    is_list_ = true;
    list_size_ = argument.N().value_or(0);
    type = list->getElementType();
    has_optional_items_ = strip_optional();
    item_type_ = stack_type(type);
    if (has_optional_items_) item_type_ = c10::OptionalType::create(item_type_);
  }
  type_ = type_of(*type);
}

std::string Parameter::declaration() const { return text(*argument_); }

bool Parameter::is_exact(const Argument& given) const {
  const Kind kind = given.kind();
  if (kind == Kind::kNone || is_list_) return kind == Kind::kNone || kind == Kind::kList;
  switch (type_) {
    case Type::kScalar:
      return kind != Kind::kBool;
    case Type::kNumber:
      return kind == Kind::kNumber;
    default:
      return true;  // nothing else is converted
  }
}

Parameter::Fit Parameter::fit(const Argument& given) const {
  torch::jit::Stack scratch;
  if (!push(given, scratch)) return Fit::kNone;
  return is_exact(given) ? Fit::kExact : Fit::kConverted;
}

char Parameter::meaning_of(const char* string) {
  if (find_dtype(std::string_view(string)) != nullptr) return 'd';
  if (find_device(string)) return 'v';
  if (find_name(kLayouts, string) != std::end(kLayouts)) return 'y';
  return find_name(kMemoryFormats, string) != std::end(kMemoryFormats) ? 'f' : 's';
}

bool Parameter::push(const Argument& given, torch::jit::Stack& stack) const {
  if (given.kind() == Kind::kNone) {
    if (is_optional_) stack.emplace_back();
    return is_optional_;
  }
  return is_list_ ? push_list(given, stack) : push_item(given, stack);
}

bool Parameter::push_default(torch::jit::Stack& stack) const {
  if (!argument_->default_value()) return false;
  stack.push_back(*argument_->default_value());
  return true;
}

bool Parameter::push_item(const Argument& given, torch::jit::Stack& stack) const {
  const Kind kind = given.kind();
  switch (type_) {
    case Type::kTensor:
      if (kind != Kind::kTensor) return false;
      stack.emplace_back(given.as_tensor());
      return true;
    case Type::kScalar:
      if (kind == Kind::kInteger) {
        stack.emplace_back(given.as_integer());
      } else if (kind == Kind::kNumber) {
        stack.emplace_back(given.as_number());
      } else if (kind == Kind::kBool) {
        stack.emplace_back(given.as_bool());
      } else {
        return false;
      }
      return true;
    case Type::kInteger:
      if (kind != Kind::kInteger) return false;
      stack.emplace_back(given.as_integer());
      return true;
    case Type::kNumber:
      if (kind != Kind::kNumber && kind != Kind::kInteger) return false;
      stack.emplace_back(kind == Kind::kNumber ? given.as_number() : static_cast<double>(given.as_integer()));
      return true;
    case Type::kBool:
      if (kind != Kind::kBool) return false;
      stack.emplace_back(given.as_bool());
      return true;
    case Type::kString:
      if (kind != Kind::kString) return false;
      stack.emplace_back(std::string(given.as_string()));
      return true;
    case Type::kDtype:
      return push_dtype(given, stack);
    case Type::kLayout:
      return push_named(kLayouts, given, stack);
    case Type::kMemoryFormat:
      return push_named(kMemoryFormats, given, stack);
    case Type::kDevice:
      return push_device(given, stack);
    case Type::kOther:
      return false;
  }
  return false;
}

bool Parameter::push_list(const Argument& given, torch::jit::Stack& stack) const {
  const bool is_single = given.kind() != Kind::kList;
  if (is_single && list_size_ == 0) return false;
  const size_t size = is_single ? static_cast<size_t>(list_size_) : given.size();
  c10::impl::GenericList list(item_type_);
  list.reserve(size);
  for (size_t index = 0; index < size; ++index) {
    const Argument item = is_single ? given : given[index];
    if (has_optional_items_ && item.kind() == Kind::kNone) {
      list.push_back(c10::IValue());
      continue;
    }
    if (!push_item(item, stack)) return false;
    list.push_back(std::move(stack.back()));
    stack.pop_back();
  }
  stack.emplace_back(std::move(list));
  return true;
}

std::string Parameter::describe(const Argument& given) {
  switch (given.kind()) {
    case Kind::kInteger:
      return text("the integer ", given.as_integer());
    case Kind::kNumber:
      return text("the number ", given.as_number());
    case Kind::kString:
      return text("the string '", given.as_string(), "'");
    case Kind::kDtype:
      return text("the dtype ", dtype_name(given.as_dtype()));
    case Kind::kDevice:
      return text("the device ", given.as_device().str());
    case Kind::kList:
      return text("a list of ", given.size());
    case Kind::kNone:
      return "none";
    case Kind::kBool:
      return given.as_bool() ? "true" : "false";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kMap:
      return "a map";
  }
  return "an unknown kind";
}

std::string Parameter::describe_misfit(const Argument& given) const {
  if (!is_list_ || given.kind() != Kind::kList) return describe(given);
  torch::jit::Stack scratch;
  for (size_t index = 0; index < given.size(); ++index) {
    const Argument item = given[index];
    const bool fits = item.kind() == Kind::kNone ? has_optional_items_ : push_item(item, scratch);
    if (!fits) return text("a list whose item ", index, " is ", describe(item));
  }
  return describe(given);
}

}  // namespace accel::tensor
