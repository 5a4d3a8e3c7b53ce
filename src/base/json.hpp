// JSON documents, through cJSON.
#pragma once

#include <cJSON.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace accel {

// The numbers of JSON are doubles: up to here they hold every integer, 2^53.
inline constexpr double kLargestExactInteger = 9007199254740992.0;

struct JsonDelete {
  void operator()(cJSON* node) const { cJSON_Delete(node); }
};
using Json = std::unique_ptr<cJSON, JsonDelete>;

// `source` says in errors what was parsed ("config.json"). Trailing text and nesting that is too deep are errors.
Json parse_json(std::string_view document, const std::string& source);

// One line, no spaces, members in insertion order.
std::string print_json(const cJSON* node);

// Members of an object, with a default where they are missing or null; a wrong type is an error that names the key.
const cJSON* json_member(const cJSON* object, const char* key);
int64_t json_integer(const cJSON* object, const char* key, int64_t otherwise);
double json_number(const cJSON* object, const char* key, double otherwise);
bool json_flag(const cJSON* object, const char* key, bool otherwise);
std::string json_text(const cJSON* object, const char* key, const std::string& otherwise);

}  // namespace accel
