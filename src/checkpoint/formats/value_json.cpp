// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/value_json.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "json/json.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"

namespace accel::checkpoint {
namespace {

namespace json_tag = tree::json_tag;

class Decoder {
 public:
  Decoder(const NamedTensors& tensors, const std::string& source) : source_(source) {
    for (const auto& [name, tensor] : tensors) tensors_.emplace(name, tensor);
  }

  c10::IValue decode(const Json& node) const {
    if (node.is_null()) return {};
    if (const bool* const flag = node.flag()) return *flag;
    if (node.digits() != nullptr) return number(node);
    if (const std::string* const text = node.text()) return plain(*text);
    if (const Json::Items* const items = node.items()) return list(*items);
    const Json::Members& members = *node.members();
    return members.size() == 1 && members[0].first[0] == '$' ? tagged(members[0]) : map(members);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is damaged: ", parts...);
  }

  c10::IValue number(const Json& node) const {
    if (const auto integer = node.integer()) return *integer;
    const auto number = node.number();
    if (!number) corrupt("the number ", *node.digits(), " is too large");
    // Other writers print the integer 1 as 1.0; our own whole doubles are tagged.
    const bool whole =
        std::floor(*number) == *number && std::fabs(*number) <= static_cast<double>(tree::kLargestExactInteger);
    return whole ? c10::IValue(static_cast<int64_t>(*number)) : c10::IValue(*number);
  }

  std::string plain(const std::string& text) const {
    if (text.find('\0') != std::string::npos) corrupt("the string '", text, "' has a NUL");
    return text;
  }

  template <typename Number>
  Number parse_number(std::string_view text) const {
    Number number{};
    if (!parse_whole(text, number)) corrupt("'", text, "' is not a number");
    return number;
  }

  c10::IValue tagged(const std::pair<std::string, Json>& member) const {
    const auto& [tag, node] = member;
    if (tag == json_tag::kMap && node.members() != nullptr) return map(*node.members());
    if (tag == json_tag::kTuple && node.items() != nullptr) return tuple(*node.items());
    if (tag == json_tag::kItems && node.items() != nullptr) return map_of_items(*node.items());
    if (tag == json_tag::kBytes && node.items() != nullptr) return bytes(*node.items());
    if (node.text() == nullptr) corrupt("the value of '", tag, "' is not a string");
    const std::string& text = *node.text();
    if (tag == json_tag::kDouble) return parse_number<double>(text);
    if (tag == json_tag::kInt) return parse_number<int64_t>(text);
    if (tag == json_tag::kDevice) return device(text);
    if (tag == json_tag::kDtype) return dtype(text);
    if (tag != json_tag::kTensor) corrupt("'", tag, "' is not a kind of value");
    const auto found = tensors_.find(text);
    if (found == tensors_.end()) corrupt("the tensor '", text, "' is missing");
    return found->second;
  }

  c10::IValue device(const std::string& text) const {
    try {
      return at::Device(text);
    } catch (const c10::Error&) {
      corrupt("'", text, "' is not a device");
    }
  }

  c10::IValue dtype(const std::string& text) const {
    try {
      return tree::dtype_value(tensor::dtype_from_name(text));
    } catch (const Error&) {
      corrupt("'", text, "' is not a dtype");
    }
  }

  c10::IValue tuple(const Json::Items& array) const {
    std::vector<c10::IValue> items;
    items.reserve(array.size());
    for (const Json& item : array) items.push_back(decode(item));
    return tree::new_tuple(std::move(items));
  }

  c10::IValue bytes(const Json::Items& parts) const {
    const bool whole = parts.size() == 2 && parts[0].text() != nullptr;
    const c10::IValue data = whole ? decode(parts[1]) : c10::IValue();
    if (!data.isTensor() || data.toTensor().scalar_type() != at::kByte)
      corrupt("bytes lack their type or their tensor");
    const at::Tensor& tensor = data.toTensor();
    return tree::bytes_value(std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()),
                             plain(*parts[0].text()));
  }

  c10::IValue map_of_items(const Json::Items& pairs) const {
    std::vector<std::pair<c10::IValue, c10::IValue>> members;
    for (const Json& pair : pairs) {
      if (pair.items() == nullptr || pair.items()->size() != 2) corrupt("a member of a map is not a key and value");
      c10::IValue key = decode((*pair.items())[0]);
      if (!key.isString() && !key.isInt()) corrupt("a key of a map is a ", tree::kind_name(key));
      members.emplace_back(std::move(key), decode((*pair.items())[1]));
    }
    auto map = tree::new_map(members);
    if (map.size() != members.size()) corrupt("a key stands there twice");
    return map;
  }

  c10::IValue list(const Json::Items& array) const {
    c10::impl::GenericList items(c10::AnyType::get());
    items.reserve(array.size());
    for (const Json& item : array) items.push_back(decode(item));
    return items;
  }

  c10::IValue map(const Json::Members& members) const {
    c10::impl::GenericDict entries(c10::StringType::get(), c10::AnyType::get());
    for (const auto& [key, value] : members) {
      if (!entries.insert(plain(key), decode(value)).second) corrupt("the key '", key, "' stands there twice");
    }
    return entries;
  }

  const std::string& source_;
  std::unordered_map<std::string, at::Tensor> tensors_;
};

}  // namespace

Json encode_value(const c10::IValue& value, NamedTensors& tensors) {
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  tree::JsonPolicy policy{tree::JsonPolicy::Form::kLossless, {}};
  policy.tensor = [&](const at::Tensor& tensor, const std::string& path) {
    std::string name = path.empty() ? "value" : path;
    for (int copy = 2; !names.insert(name).second; copy++) name = text(path, "#", copy);
    tensors.emplace_back(name, tensor);
    return Json(Json::Members{{json_tag::kTensor, Json(name)}});
  };
  return tree::json_of(value, policy);
}

c10::IValue decode_value(const Json& node, const NamedTensors& tensors, const std::string& source) {
  return Decoder(tensors, source).decode(node);
}

}  // namespace accel::checkpoint
