#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <new>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tensor/tree.hpp"

// cJSON keeps every number as a double. So integers leave as raw text, and when a document is read their text is taken
// from it.
namespace accel::tree {
namespace {

template <typename Number>
std::string print_number(Number number) {
  std::array<char, 32> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return {digits.data(), result.ptr};
}

std::string print_double(double number) {
  require(std::isfinite(number), Status::kTypeMismatch, "the number ", number,
          " cannot be said in JSON; expected a finite one");
  const std::string digits = print_number(number);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;  // read back, it is a double again
}

Json made(Json item) {
  if (item == nullptr) throw std::bad_alloc();
  return item;
}

Json json_of(const c10::IValue& value, int depth) {
  require(depth <= kDeepest, Status::kInvalidArgument, "a value is nested more than ", kDeepest, " levels deep");
  if (value.isNone()) return made(Json(cJSON_CreateNull()));
  if (value.isBool()) return made(Json(cJSON_CreateBool(value.toBool())));
  if (value.isInt()) return made(Json(cJSON_CreateRaw(print_number(value.toInt()).c_str())));
  if (value.isDouble()) return made(Json(cJSON_CreateRaw(print_double(value.toDouble()).c_str())));
  if (value.isString()) return made(Json(cJSON_CreateString(value.toStringRef().c_str())));
  if (value.isDevice()) return made(Json(cJSON_CreateString(value.toDevice().str().c_str())));
  if (value.isTensor()) return json_of(listify(value), depth);
  if (value.isGenericDict()) {
    Json object = made(Json(cJSON_CreateObject()));
    for (const auto& member : value.toGenericDict()) {
      require(member.key().isString(), Status::kTypeMismatch, "a map has a key of kind ", kind_name(member.key()),
              "; expected strings");
      cJSON_AddItemToObject(object.get(), member.key().toStringRef().c_str(),
                            json_of(member.value(), depth + 1).release());
    }
    return object;
  }
  require(value.isList() || value.isTuple(), Status::kTypeMismatch, "a value of kind ", kind_name(value),
          " cannot be said in JSON");
  Json array = made(Json(cJSON_CreateArray()));
  for (const c10::IValue& item : sequence_items(value))
    cJSON_AddItemToArray(array.get(), json_of(item, depth + 1).release());
  return array;
}

// The number tokens of a valid document, in its order.
class NumberTokens {
 public:
  NumberTokens(std::string_view document, const std::string& source) : document_(document), source_(source) {}

  c10::IValue next() {
    while (!begins_number(document_[position_])) {
      if (document_[position_] == '"') skip_string();
      position_++;
    }
    const size_t begin = position_;
    position_ = std::min(document_.find_first_not_of("+-0123456789.eE", begin), document_.size());
    const std::string_view token = document_.substr(begin, position_ - begin);
    const size_t digits = token[0] == '-' ? 1 : 0;
    if (token.size() > digits + 1 && token[digits] == '0' && is_digit(token[digits + 1]))
      refuse(token, begin, "a leading zero");
    if (!is_digit(token.back())) refuse(token, begin, "no digit at its end");
    return token.find_first_of(".eE") == std::string_view::npos ? read<int64_t>(token, begin)
                                                                : read<double>(token, begin);
  }

 private:
  static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
  static bool begins_number(char byte) { return byte == '-' || is_digit(byte); }

  void skip_string() {
    for (position_++; document_[position_] != '"'; position_++)
      if (document_[position_] == '\\') position_++;
  }

  template <typename Number>
  c10::IValue read(std::string_view token, size_t begin) const {
    Number number{};
    const auto result = std::from_chars(token.data(), token.data() + token.size(), number);
    if (result.ec == std::errc::result_out_of_range) refuse(token, begin, "more than 64 bits can hold");
    if (result.ec != std::errc() || result.ptr != token.data() + token.size())
      refuse(token, begin, "a form that is no number");
    return number;
  }

  [[noreturn]] void refuse(std::string_view token, size_t begin, const char* reason) const {
    fail(Status::kInvalidArgument, source_, " is not valid JSON at byte ", begin, ": the number ", token, " has ",
         reason);
  }

  const std::string_view document_;
  const std::string& source_;
  size_t position_ = 0;
};

c10::IValue value_of(const cJSON* node, NumberTokens& numbers, const std::string& source, int depth) {
  require(depth <= kDeepest, Status::kInvalidArgument, source, " is nested more than ", kDeepest, " levels deep");
  if (cJSON_IsNull(node)) return {};
  if (cJSON_IsBool(node)) return cJSON_IsTrue(node) != 0;
  if (cJSON_IsNumber(node)) return numbers.next();
  if (cJSON_IsString(node)) return std::string(node->valuestring);
  const cJSON* item = nullptr;
  if (cJSON_IsArray(node)) {
    c10::List<c10::IValue> items = new_list();
    cJSON_ArrayForEach(item, node) items.push_back(value_of(item, numbers, source, depth + 1));
    return items;
  }
  c10::impl::GenericDict members = new_map();
  cJSON_ArrayForEach(item, node)
      members.insert_or_assign(std::string(item->string), value_of(item, numbers, source, depth + 1));
  return members;
}

// A NUL would silently end the string that it stands in.
void refuse_nul(std::string_view document, const std::string& source) {
  for (size_t place = document.find("\\u0000"); place != std::string_view::npos;
       place = document.find("\\u0000", place + 1)) {
    size_t backslashes = 0;
    while (backslashes < place && document[place - 1 - backslashes] == '\\') backslashes++;
    require(backslashes % 2 == 1, Status::kInvalidArgument, source, " has the character \\u0000 at byte ", place,
            "; strings cannot hold it");
  }
}

}  // namespace

std::string to_json(const c10::IValue& value) { return print_json(json_of(value, 0).get()); }

c10::IValue from_json(const std::string& json, const std::string& source) {
  const Json document = parse_json(json, source);
  refuse_nul(json, source);
  NumberTokens numbers(json, source);
  return value_of(document.get(), numbers, source, 0);
}

}  // namespace accel::tree
