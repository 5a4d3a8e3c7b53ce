#include "base/json.hpp"

#include <cmath>

#include "base/error.hpp"

namespace accel {
namespace {

[[noreturn]] void wrong_type(const char* key, const cJSON* node, const char* expected) {
  fail(Status::kTypeMismatch, "JSON member '", key, "' is ", print_json(node), "; expected ", expected);
}

}  // namespace

Json parse_json(std::string_view document, const std::string& source) {
  const char* end = nullptr;
  Json node(cJSON_ParseWithLengthOpts(document.data(), document.size(), &end, 0));
  const size_t offset = end == nullptr ? 0 : static_cast<size_t>(end - document.data());
  require(node != nullptr, Status::kInvalidArgument, source, " is not valid JSON at byte ", offset, " of ",
          document.size());
  for (size_t i = offset; i < document.size(); i++)
    require(std::string_view(" \t\r\n\0", 5).find(document[i]) != std::string_view::npos, Status::kInvalidArgument,
            source, " has text after its JSON document, at byte ", i);
  return node;
}

std::string print_json(const cJSON* node) {
  char* printed = cJSON_PrintUnformatted(node);
  require(printed != nullptr, Status::kOutOfMemory, "no memory to print a JSON document");
  std::string result(printed);
  cJSON_free(printed);
  return result;
}

const cJSON* json_member(const cJSON* object, const char* key) {
  const cJSON* node = cJSON_GetObjectItemCaseSensitive(object, key);
  return cJSON_IsNull(node) ? nullptr : node;
}

int64_t json_integer(const cJSON* object, const char* key, int64_t otherwise) {
  const cJSON* node = json_member(object, key);
  if (node == nullptr) return otherwise;
  if (!cJSON_IsNumber(node) || std::floor(node->valuedouble) != node->valuedouble ||
      std::fabs(node->valuedouble) > kLargestExactInteger)
    wrong_type(key, node, "an integer");
  return static_cast<int64_t>(node->valuedouble);
}

double json_number(const cJSON* object, const char* key, double otherwise) {
  const cJSON* node = json_member(object, key);
  if (node == nullptr) return otherwise;
  if (!cJSON_IsNumber(node)) wrong_type(key, node, "a number");
  return node->valuedouble;
}

bool json_flag(const cJSON* object, const char* key, bool otherwise) {
  const cJSON* node = json_member(object, key);
  if (node == nullptr) return otherwise;
  if (!cJSON_IsBool(node)) wrong_type(key, node, "true or false");
  return cJSON_IsTrue(node) != 0;
}

std::string json_text(const cJSON* object, const char* key, const std::string& otherwise) {
  const cJSON* node = json_member(object, key);
  if (node == nullptr) return otherwise;
  if (!cJSON_IsString(node)) wrong_type(key, node, "a string");
  return node->valuestring;
}

}  // namespace accel
