// SPDX-License-Identifier: Apache-2.0
// JSON values from cJSON's nodes; the only file that uses cJSON.
#include <cJSON.h>

#include <algorithm>
#include <memory>
#include <new>

#include "base/error.hpp"
#include "json/json.hpp"
#include "json/json_grammar.hpp"

namespace accel {
namespace {

struct NodeDelete {
  void operator()(cJSON* node) const { cJSON_Delete(node); }
};
using Node = std::unique_ptr<cJSON, NodeDelete>;

// cJSON can only fail for lack of memory here: see [Note: JSON through cJSON].
template <typename Result>
Result made(Result result) {
  if (!result) throw std::bad_alloc();
  return result;
}

std::string with_nuls(const char* text) {
  std::string result(text);
  std::replace(result.begin(), result.end(), kNul, '\0');
  return result;
}

Json value_of(const cJSON* node, const std::vector<std::string_view>& numbers) {
  if (cJSON_IsNumber(node)) return Json::number_of(std::string(numbers.at(static_cast<size_t>(node->valuedouble))));
  if (cJSON_IsString(node)) return Json(with_nuls(node->valuestring));
  if (cJSON_IsBool(node)) return Json(cJSON_IsTrue(node) != 0);
  const cJSON* child = nullptr;
  if (cJSON_IsArray(node)) {
    Json::Items items;
    cJSON_ArrayForEach(child, node) items.push_back(value_of(child, numbers));
    return Json(std::move(items));
  }
  if (cJSON_IsObject(node)) {
    Json::Members members;
    cJSON_ArrayForEach(child, node) members.emplace_back(with_nuls(child->string), value_of(child, numbers));
    return Json(std::move(members));
  }
  return {};
}

}  // namespace

Json parse_json(std::string_view document, const std::string& source) {
  const CheckedJson checked = check_json(document, source);
  const Node node = made(Node(cJSON_ParseWithLength(checked.text.data(), checked.text.size())));
  return value_of(node.get(), checked.numbers);
}

}  // namespace accel
