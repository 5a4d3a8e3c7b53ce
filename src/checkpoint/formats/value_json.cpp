#include "checkpoint/formats/value_json.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/text_check.hpp"
#include "json/json.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr int kDeepest = kDeepestJson / 3 - 1;  // "$items" takes three levels

constexpr const char* kTensor = "$tensor";
constexpr const char* kDouble = "$double";
constexpr const char* kInt = "$int";
constexpr const char* kDevice = "$device";
constexpr const char* kDtype = "$dtype";
constexpr const char* kMap = "$map";
constexpr const char* kTuple = "$tuple";
constexpr const char* kBytes = "$bytes";  // [type, tensor]
constexpr const char* kItems = "$items";  // of a map that has other keys than strings: [[key, value], ...]

// 2^53: larger integers are not exact for readers that store numbers as doubles.
constexpr int64_t kLargestExactInteger = int64_t{1} << 53;

bool is_exact(int64_t integer) { return integer >= -kLargestExactInteger && integer <= kLargestExactInteger; }

class Encoder {
 public:
  explicit Encoder(NamedTensors& tensors) : tensors_(tensors) {
    for (const auto& [name, tensor] : tensors) names_.insert(name);
  }

  Json encode(const c10::IValue& value, const std::string& path, int depth) {
    require(depth <= kDeepest, Status::kInvalidArgument, "the value at '", path, "' is nested more than ", kDeepest,
            " deep; files cannot hold it");
    if (value.isNone()) return {};
    if (value.isBool()) return Json(value.toBool());
    if (value.isInt()) return integer(value.toInt());
    if (value.isDouble()) return number(value.toDouble());
    if (value.isString()) return string(value.toStringRef(), path);
    if (value.isTensor()) return tensor(value.toTensor(), path);
    if (value.isDevice()) return tagged(kDevice, Json(value.toDevice().str()));
    if (value.isList()) return list(value.toListRef(), path, depth);
    if (value.isTuple()) return tagged(kTuple, list(value.toTupleRef().elements(), path, depth));
    if (value.isGenericDict()) return map(value.toGenericDict(), path, depth);
    if (const tree::Bytes* const bytes = tree::bytes_of(value)) return encode_bytes(*bytes, path);
    if (const auto dtype = tree::dtype_of(value)) return tagged(kDtype, Json(std::string(tensor::dtype_name(*dtype))));
    fail(Status::kTypeMismatch, "the value at '", path, "' is a ", tree::kind_name(value),
         "; files hold numbers, strings, bytes, tensors, lists, tuples and maps");
  }

 private:
  static Json tagged(const char* tag, Json value) {
    Json::Members object;
    object.emplace_back(tag, std::move(value));
    return Json(std::move(object));
  }

  static Json integer(int64_t integer) {
    return is_exact(integer) ? Json::number(integer) : tagged(kInt, Json(text_of_number(integer)));
  }

  static Json number(double number) {
    const bool plain = std::isfinite(number) && std::floor(number) != number;
    return plain ? Json::number(number) : tagged(kDouble, Json(text_of_number(number)));
  }

  static Json string(const std::string& text, const std::string& path) {
    require(first_bad_byte(text) == text.size(), Status::kInvalidArgument, "the string at '", path,
            "' is not UTF-8, or has a NUL; files cannot hold it");
    return Json(text);
  }

  Json tensor(const at::Tensor& tensor, const std::string& path) {
    if (!tensor.defined()) return {};
    std::string name = path.empty() ? "value" : path;
    for (int copy = 2; !names_.insert(name).second; copy++) name = text(path, "#", copy);
    tensors_.emplace_back(name, tensor);
    return tagged(kTensor, Json(name));
  }

  Json encode_bytes(const tree::Bytes& bytes, const std::string& path) {
    Json::Items parts;
    parts.emplace_back(string(bytes.type, path));
    parts.push_back(tensor(tensor_of(bytes.data), path));
    return tagged(kBytes, Json(std::move(parts)));
  }

  static at::Tensor tensor_of(const std::string& bytes) {
    const at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  template <typename Items>
  Json list(const Items& items, const std::string& path, int depth) {
    Json::Items array;
    for (const c10::IValue& item : items)
      array.push_back(encode(item, tree::path_below(path, std::to_string(array.size())), depth + 1));
    return Json(std::move(array));
  }

  Json map(const c10::impl::GenericDict& dict, const std::string& path, int depth) {
    if (std::any_of(dict.begin(), dict.end(), [](const auto& entry) { return !entry.key().isString(); }))
      return tagged(kItems, items(dict, path, depth));
    Json::Members object;
    for (const auto& entry : dict) {
      const std::string& key = entry.key().toStringRef();
      require(first_bad_byte(key) == key.size(), Status::kInvalidArgument, "a key of the map at '", path,
              "' is not UTF-8, or has a NUL; files cannot hold it");
      object.emplace_back(key, encode(entry.value(), tree::path_below(path, key), depth + 1));
    }
    const bool looks_tagged = object.size() == 1 && object[0].first[0] == '$';
    return looks_tagged ? tagged(kMap, Json(std::move(object))) : Json(std::move(object));
  }

  Json items(const c10::impl::GenericDict& dict, const std::string& path, int depth) {
    Json::Items pairs;
    for (const auto& entry : dict) {
      require(entry.key().isString() || entry.key().isInt(), Status::kTypeMismatch, "the map at '", path,
              "' has a key of kind ", tree::kind_name(entry.key()),
              "; files hold maps with strings or integers as keys");
      const std::string name = entry.key().isInt() ? text_of_number(entry.key().toInt()) : entry.key().toStringRef();
      Json::Items pair;
      pair.push_back(encode(entry.key(), path, depth + 1));
      pair.push_back(encode(entry.value(), tree::path_below(path, name), depth + 1));
      pairs.emplace_back(std::move(pair));
    }
    return Json(std::move(pairs));
  }

  NamedTensors& tensors_;
  std::unordered_set<std::string> names_;
};

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
    const bool whole = std::floor(*number) == *number && std::fabs(*number) <= double{kLargestExactInteger};
    return whole ? c10::IValue(static_cast<int64_t>(*number)) : c10::IValue(*number);
  }

  std::string plain(const std::string& text) const {
    if (text.find('\0') != std::string::npos) corrupt("the string '", text, "' has a NUL");
    return text;
  }

  template <typename Number>
  Number parse_number(std::string_view text) const {
    Number number{};
    const auto result = number_from_chars(text.data(), text.data() + text.size(), number);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) corrupt("'", text, "' is not a number");
    return number;
  }

  c10::IValue tagged(const std::pair<std::string, Json>& member) const {
    const auto& [tag, node] = member;
    if (tag == kMap && node.members() != nullptr) return map(*node.members());
    if (tag == kTuple && node.items() != nullptr) return tuple(*node.items());
    if (tag == kItems && node.items() != nullptr) return map_of_items(*node.items());
    if (tag == kBytes && node.items() != nullptr) return bytes(*node.items());
    if (node.text() == nullptr) corrupt("the value of '", tag, "' is not a string");
    const std::string& text = *node.text();
    if (tag == kDouble) return parse_number<double>(text);
    if (tag == kInt) return parse_number<int64_t>(text);
    if (tag == kDevice) return device(text);
    if (tag == kDtype) return dtype(text);
    if (tag != kTensor) corrupt("'", tag, "' is not a kind of value");
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

Json encode_value(const c10::IValue& value, NamedTensors& tensors) { return Encoder(tensors).encode(value, "", 0); }

c10::IValue decode_value(const Json& node, const NamedTensors& tensors, const std::string& source) {
  return Decoder(tensors, source).decode(node);
}

}  // namespace accel::checkpoint
