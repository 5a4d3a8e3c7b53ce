#include "checkpoint/value_json.hpp"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text_check.hpp"

namespace accel::checkpoint {
namespace {

constexpr int kDeepest = 500;  // cJSON refuses documents that are nested 1000 deep, and tagged values take two levels

constexpr const char* kTensor = "$tensor";
constexpr const char* kDouble = "$double";
constexpr const char* kInt = "$int";
constexpr const char* kDevice = "$device";
constexpr const char* kMap = "$map";

template <typename Number>
std::string print_number(Number number) {
  std::array<char, 64> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), result.ptr};
}

bool is_exact(int64_t integer) { return std::llabs(integer) <= static_cast<int64_t>(kLargestExactInteger); }

class Encoder {
 public:
  explicit Encoder(NamedTensors& tensors) : tensors_(tensors) {
    for (const auto& [name, tensor] : tensors) names_.insert(name);
  }

  Json encode(const c10::IValue& value, const std::string& path, int depth) {
    require(depth <= kDeepest, Status::kInvalidArgument, "the value at '", path, "' is nested more than ", kDeepest,
            " deep; files cannot hold it");
    if (value.isNone()) return Json(cJSON_CreateNull());
    if (value.isBool()) return Json(cJSON_CreateBool(value.toBool()));
    if (value.isInt()) return integer(value.toInt());
    if (value.isDouble()) return number(value.toDouble());
    if (value.isString()) return string(value.toStringRef(), path);
    if (value.isTensor()) return tensor(value.toTensor(), path);
    if (value.isDevice()) return tagged(kDevice, value.toDevice().str());
    if (value.isList()) return list(value.toListRef(), path, depth);
    if (value.isTuple()) return list(value.toTupleRef().elements(), path, depth);
    if (value.isGenericDict()) return map(value.toGenericDict(), path, depth);
    fail(Status::kTypeMismatch, "the value at '", path, "' is a ", value.tagKind(),
         "; files hold numbers, strings, tensors, lists and maps");
  }

 private:
  static Json tagged(const char* tag, const std::string& text) {
    Json object(cJSON_CreateObject());
    cJSON_AddStringToObject(object.get(), tag, text.c_str());
    return object;
  }

  static Json integer(int64_t integer) {
    return is_exact(integer) ? Json(cJSON_CreateRaw(print_number(integer).c_str()))
                             : tagged(kInt, print_number(integer));
  }

  static Json number(double number) {
    const bool plain = std::isfinite(number) && std::floor(number) != number;
    return plain ? Json(cJSON_CreateRaw(print_number(number).c_str())) : tagged(kDouble, print_number(number));
  }

  static Json string(const std::string& text, const std::string& path) {
    require(first_bad_byte(text, TextKind::kPlain) == text.size(), Status::kInvalidArgument, "the string at '", path,
            "' is not UTF-8, or has a NUL; files cannot hold it");
    return Json(cJSON_CreateString(text.c_str()));
  }

  Json tensor(const at::Tensor& tensor, const std::string& path) {
    if (!tensor.defined()) return Json(cJSON_CreateNull());
    std::string name = path.empty() ? "value" : path;
    for (int copy = 2; !names_.insert(name).second; copy++) name = text(path, "#", copy);
    tensors_.emplace_back(name, tensor);
    return tagged(kTensor, name);
  }

  static std::string below(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }

  template <typename Items>
  Json list(const Items& items, const std::string& path, int depth) {
    Json array(cJSON_CreateArray());
    size_t index = 0;
    for (const c10::IValue& item : items) {
      cJSON_AddItemToArray(array.get(), encode(item, below(path, std::to_string(index)), depth + 1).release());
      index++;
    }
    return array;
  }

  Json map(const c10::impl::GenericDict& dict, const std::string& path, int depth) {
    Json object(cJSON_CreateObject());
    for (const auto& entry : dict) {
      require(entry.key().isString(), Status::kTypeMismatch, "the map at '", path,
              "' has a key that is no string; files hold maps with strings as keys");
      const std::string& key = entry.key().toStringRef();
      require(first_bad_byte(key, TextKind::kPlain) == key.size(), Status::kInvalidArgument, "a key of the map at '",
              path, "' is not UTF-8, or has a NUL; files cannot hold it");
      cJSON_AddItemToObject(object.get(), key.c_str(), encode(entry.value(), below(path, key), depth + 1).release());
    }
    const cJSON* const first = object->child;
    if (first == nullptr || first->next != nullptr || first->string[0] != '$') return object;
    Json wrapped(cJSON_CreateObject());
    cJSON_AddItemToObject(wrapped.get(), kMap, object.release());
    return wrapped;
  }

  NamedTensors& tensors_;
  std::unordered_set<std::string> names_;
};

class Decoder {
 public:
  Decoder(const NamedTensors& tensors, const std::string& source) : source_(source) {
    for (const auto& [name, tensor] : tensors) tensors_.emplace(name, tensor);
  }

  c10::IValue decode(const cJSON* node) const {
    if (cJSON_IsNull(node)) return {};
    if (cJSON_IsBool(node)) return cJSON_IsTrue(node) != 0;
    if (cJSON_IsNumber(node)) return number(node->valuedouble);
    if (cJSON_IsString(node)) return std::string(node->valuestring);
    if (cJSON_IsArray(node)) return list(node);
    const cJSON* const first = node->child;
    if (first != nullptr && first->next == nullptr && first->string[0] == '$') return tagged(first);
    return map(node);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is damaged: ", parts...);
  }

  static c10::IValue number(double number) {
    if (std::floor(number) == number && std::fabs(number) <= kLargestExactInteger) return static_cast<int64_t>(number);
    return number;
  }

  template <typename Number>
  Number parse_number(std::string_view text) const {
    Number number{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) corrupt("'", text, "' is no number");
    return number;
  }

  c10::IValue tagged(const cJSON* node) const {
    const std::string_view tag = node->string;
    if (tag == kMap && cJSON_IsObject(node)) return map(node);
    if (!cJSON_IsString(node)) corrupt("the value of '", tag, "' is no string");
    const std::string text = node->valuestring;
    if (tag == kDouble) return parse_number<double>(text);
    if (tag == kInt) return parse_number<int64_t>(text);
    if (tag == kDevice) return device(text);
    if (tag != kTensor) corrupt("'", tag, "' is no kind of value");
    const auto found = tensors_.find(text);
    if (found == tensors_.end()) corrupt("the tensor '", text, "' is missing");
    return found->second;
  }

  c10::IValue device(const std::string& text) const {
    try {
      return at::Device(text);
    } catch (const c10::Error&) {
      corrupt("'", text, "' is no device");
    }
  }

  c10::IValue list(const cJSON* array) const {
    c10::impl::GenericList items(c10::AnyType::get());
    const cJSON* node = nullptr;
    cJSON_ArrayForEach(node, array) items.push_back(decode(node));
    return items;
  }

  c10::IValue map(const cJSON* object) const {
    c10::impl::GenericDict entries(c10::StringType::get(), c10::AnyType::get());
    const cJSON* node = nullptr;
    cJSON_ArrayForEach(node, object) {
      if (!entries.insert(std::string(node->string), decode(node)).second)
        corrupt("the key '", node->string, "' stands there twice");
    }
    return entries;
  }

  const std::string& source_;
  std::unordered_map<std::string, at::Tensor> tensors_;
};

}  // namespace

Json encode_value(const c10::IValue& value, NamedTensors& tensors) { return Encoder(tensors).encode(value, "", 0); }

c10::IValue decode_value(const cJSON* node, const NamedTensors& tensors, const std::string& source) {
  return Decoder(tensors, source).decode(node);
}

}  // namespace accel::checkpoint
