// SPDX-License-Identifier: Apache-2.0
#include "tensor/tree_json.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/text_check.hpp"
#include "json/json.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::tree {
namespace {

constexpr int kDeepestLossless = kDeepestJson / 3 - 1;  // "$items" takes three levels

using Form = JsonPolicy::Form;

class Encoder {
 public:
  explicit Encoder(const JsonPolicy& policy) : policy_(policy) {}

  Json encode(const c10::IValue& value, const std::string& path, int depth) const {
    const int deepest = is_lossless() ? kDeepestLossless : kDeepest;
    if (depth > deepest)
      fail(Status::kInvalidArgument, at("value", path), " is nested more than ", deepest, " levels deep");
    if (value.isNone()) return {};
    if (value.isBool()) return Json(value.toBool());
    if (value.isInt()) return integer(value.toInt());
    if (value.isDouble()) return number(value.toDouble());
    if (value.isString()) return string(value.toStringRef(), path);
    if (value.isTensor()) return tensor(value.toTensor(), path, depth);
    if (value.isDevice()) return tagged(json_tag::kDevice, Json(value.toDevice().str()));
    if (value.isTuple()) return tagged(json_tag::kTuple, list(value, path, depth));
    if (value.isList()) return list(value, path, depth);
    if (value.isGenericDict()) return map(value.toGenericDict(), path, depth);
    if (const auto dtype = dtype_of(value))
      return tagged(json_tag::kDtype, Json(std::string(tensor::dtype_name(*dtype))));
    const Bytes* const bytes = is_lossless() ? bytes_of(value) : nullptr;
    if (bytes == nullptr)
      fail(Status::kTypeMismatch, at("value", path), " of kind ", kind_name(value), " cannot be said in JSON");
    return Json(Json::Members{{json_tag::kBytes, Json(Json::Items{string(bytes->type, path),
                                                                  policy_.tensor(tensor_of(bytes->data), path)})}});
  }

 private:
  bool is_lossless() const { return policy_.form == Form::kLossless; }

  // "a map", or "the map at 'a.b'".
  static std::string at(const char* what, const std::string& path) {
    return path.empty() ? text("a ", what) : text("the ", what, " at '", path, "'");
  }

  Json tagged(const char* tag, Json value) const {
    return is_lossless() ? Json(Json::Members{{tag, std::move(value)}}) : value;
  }

  Json integer(int64_t integer) const {
    const bool is_exact = integer >= -kLargestExactInteger && integer <= kLargestExactInteger;
    return is_exact || !is_lossless() ? Json::number(integer) : tagged(json_tag::kInt, Json(text_of_number(integer)));
  }

  Json number(double number) const {
    const bool is_plain = std::isfinite(number) && (!is_lossless() || std::floor(number) != number);
    if (is_plain) return Json::number(number);
    require(policy_.form != Form::kStrict, Status::kTypeMismatch, "the number ", number,
            " cannot be said in JSON; expected a finite one");
    return is_lossless() ? tagged(json_tag::kDouble, Json(text_of_number(number))) : Json(nonfinite_word(number));
  }

  Json string(const std::string& words, const std::string& path) const {
    if (is_lossless() && first_bad_byte(words) != words.size())
      fail(Status::kInvalidArgument, at("string", path), " is not UTF-8, or has a NUL; files cannot hold it");
    return Json(words);
  }

  Json tensor(const at::Tensor& tensor, const std::string& path, int depth) const {
    if (policy_.tensor) return tensor.defined() ? policy_.tensor(tensor, path) : Json();
    return encode(listify(tensor), path, depth);
  }

  static at::Tensor tensor_of(const std::string& bytes) {
    const at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  Json list(const c10::IValue& value, const std::string& path, int depth) const {
    Json::Items items;
    // A text for each of a million numbers would take longer than the numbers.
    for (const c10::IValue& item : sequence_items(value)) {
      const bool is_number = item.isDouble() || item.isInt() || item.isBool();
      items.push_back(encode(item, is_number ? path : path_below(path, std::to_string(items.size())), depth + 1));
    }
    return Json(std::move(items));
  }

  Json map(const c10::impl::GenericDict& dict, const std::string& path, int depth) const {
    const auto is_string = [](const auto& entry) { return entry.key().isString(); };
    if (is_lossless() && !std::all_of(dict.begin(), dict.end(), is_string))
      return tagged(json_tag::kItems, items(dict, path, depth));
    Json::Members members;
    for (const auto& entry : dict) {
      std::string key = key_of(entry.key(), path, policy_.form == Form::kReadable);
      Json member = encode(entry.value(), path_below(path, key), depth + 1);
      members.emplace_back(std::move(key), std::move(member));
    }
    const bool looks_tagged = is_lossless() && members.size() == 1 && members[0].first[0] == '$';
    return looks_tagged ? tagged(json_tag::kMap, Json(std::move(members))) : Json(std::move(members));
  }

  Json items(const c10::impl::GenericDict& dict, const std::string& path, int depth) const {
    Json::Items pairs;
    for (const auto& entry : dict) {
      const std::string name = key_of(entry.key(), path, true);
      pairs.emplace_back(
          Json::Items{encode(entry.key(), path, depth + 1), encode(entry.value(), path_below(path, name), depth + 1)});
    }
    return Json(std::move(pairs));
  }

  std::string key_of(const c10::IValue& key, const std::string& path, bool takes_integers) const {
    if (takes_integers && key.isInt()) return text_of_number(key.toInt());
    if (!key.isString())
      fail(Status::kTypeMismatch, at("map", path), " has a key of kind ", kind_name(key), "; expected strings",
           takes_integers ? " or integers" : "");
    if (is_lossless()) string(key.toStringRef(), path);
    return key.toStringRef();
  }

  const JsonPolicy& policy_;
};

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

Json json_of(const c10::IValue& value, const JsonPolicy& policy, const std::string& path) {
  return Encoder(policy).encode(value, path, 0);
}

std::string to_json(const c10::IValue& value) { return print_json(json_of(value)); }

c10::IValue from_json(const std::string& json, const std::string& source) {
  return from_json(parse_json(json, source), source);
}

c10::IValue from_json(const Json& document, const std::string& source) { return value_of(document, source, 0); }

}  // namespace accel::tree
