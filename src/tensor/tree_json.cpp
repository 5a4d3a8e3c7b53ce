#include "tensor/tree_json.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "json/json.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::tree {
namespace {

Json json_of(const c10::IValue& value, int depth) {
  require(depth <= kDeepest, Status::kInvalidArgument, "a value is nested more than ", kDeepest, " levels deep");
  if (value.isNone()) return {};
  if (value.isBool()) return Json(value.toBool());
  if (value.isInt()) return Json::number(value.toInt());
  if (value.isDouble()) {
    require(std::isfinite(value.toDouble()), Status::kTypeMismatch, "the number ", value.toDouble(),
            " cannot be said in JSON; expected a finite one");
    return Json::number(value.toDouble());
  }
  if (value.isString()) return Json(value.toStringRef());
  if (value.isDevice()) return Json(value.toDevice().str());
  if (const auto dtype = dtype_of(value)) return Json(std::string(tensor::dtype_name(*dtype)));
  if (value.isTensor()) return json_of(listify(value), depth);
  if (value.isGenericDict()) {
    Json::Members members;
    for (const auto& member : value.toGenericDict()) {
      require(member.key().isString(), Status::kTypeMismatch, "a map has a key of kind ", kind_name(member.key()),
              "; expected strings");
      members.emplace_back(member.key().toStringRef(), json_of(member.value(), depth + 1));
    }
    return Json(std::move(members));
  }
  require(value.isList() || value.isTuple(), Status::kTypeMismatch, "a value of kind ", kind_name(value),
          " cannot be said in JSON");
  Json::Items items;
  for (const c10::IValue& item : sequence_items(value)) items.push_back(json_of(item, depth + 1));
  return Json(std::move(items));
}

c10::IValue number_of(const Json& node, const std::string& source) {
  if (const auto integer = node.integer()) return *integer;
  const std::string& digits = *node.digits();
  const bool is_integer = digits.find_first_of(".eE") == std::string::npos;
  const auto number = is_integer ? std::nullopt : node.number();
  require(number.has_value(), Status::kInvalidArgument, source, " has the number ", digits,
          ", which 64 bits cannot hold");
  return *number;
}

std::string text_of(const std::string& text, const std::string& source) {
  require(text.find('\0') == std::string::npos, Status::kInvalidArgument, source,
          " has the character \\u0000; strings cannot hold it");
  return text;
}

c10::IValue value_of(const Json& node, const std::string& source, int depth) {
  require(depth <= kDeepest, Status::kInvalidArgument, source, " is nested more than ", kDeepest, " levels deep");
  if (node.is_null()) return {};
  if (const bool* const flag = node.flag()) return *flag;
  if (node.digits() != nullptr) return number_of(node, source);
  if (const std::string* const text = node.text()) return text_of(*text, source);
  if (const Json::Items* const items = node.items()) {
    c10::List<c10::IValue> list = new_list();
    list.reserve(items->size());
    for (const Json& item : *items) list.push_back(value_of(item, source, depth + 1));
    return list;
  }
  c10::impl::GenericDict map = new_map();
  for (const auto& [key, value] : *node.members())
    map.insert_or_assign(text_of(key, source), value_of(value, source, depth + 1));
  return map;
}

}  // namespace

std::string to_json(const c10::IValue& value) { return print_json(json_of(value, 0)); }

c10::IValue from_json(const std::string& json, const std::string& source) {
  return from_json(parse_json(json, source), source);
}

c10::IValue from_json(const Json& document, const std::string& source) { return value_of(document, source, 0); }

}  // namespace accel::tree
