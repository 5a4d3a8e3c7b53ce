// SPDX-License-Identifier: Apache-2.0
#include "tensor/operators/operator_suggestions.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/error.hpp"

namespace accel::tensor {
namespace {

constexpr size_t kMostSuggestions = 5;

std::string_view without_namespace(std::string_view name) {
  const size_t colons = name.find("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

template <typename Names>
std::string joined(const Names& names, const char* quote) {
  std::string result;
  for (const auto& name : names) result += text(result.empty() ? "" : ", ", quote, name, quote);
  return result;
}

// Operators of another namespace count as one letter farther away.
std::vector<std::string> nearest_names(std::string_view name, const std::set<std::string>& known) {
  const std::string_view base = without_namespace(name);
  const size_t farthest = (base.size() + 2) / 3;
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    const bool other_namespace =
        candidate.compare(0, name.size() - base.size(), name, 0, name.size() - base.size()) != 0;
    const size_t distance = edit_distance(base, without_namespace(candidate)) + (other_namespace ? 1 : 0);
    if (distance <= farthest) ranked.emplace_back(distance, candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kMostSuggestions, ranked.size()); ++i) names.push_back(std::move(ranked[i].second));
  return names;
}

}  // namespace

void refuse_operator_name(std::string_view name, std::string_view overload) {
  std::set<std::string> known, overloads;
  for (c10::OperatorName& candidate : std::vector<c10::OperatorName>(c10::Dispatcher::singleton().getAllOpNames())) {
    if (candidate.name == name) overloads.insert(std::move(candidate.overload_name));
    known.insert(std::move(candidate.name));
  }
  require(overloads.empty(), Status::kNotFound, "operator '", name, "' has no overload '", overload,
          "'; expected one of ", joined(overloads, "'"));

  const size_t dot = name.rfind('.');
  if (dot != std::string_view::npos && known.count(std::string(name.substr(0, dot))) != 0) {
    fail(Status::kNotFound, "operator '", name, "' is not known; expected the name '", name.substr(0, dot),
         "' and the overload '", name.substr(dot + 1), "' apart");
  }
  const std::vector<std::string> near_names = nearest_names(name, known);
  require(!near_names.empty(), Status::kNotFound, "operator '", name,
          "' is not known; expected a name such as 'aten::add'");
  fail(Status::kNotFound, "operator '", name, "' is not known; did you mean ", joined(near_names, ""), "?");
}

}  // namespace accel::tensor
