// SPDX-License-Identifier: Apache-2.0
#include "tensor/operators/operator_resolution.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tensor/operators/operator_suggestions.hpp"

namespace accel::tensor {
namespace {

constexpr size_t kMostOverloadsInError = 12;
constexpr std::string_view kDefaultNamespaces[] = {"aten::", "accel::"};

struct Overloads {
  std::vector<const Operator*> operators;
  std::unordered_map<std::string, const Operator*> chosen;  // by signature_of()
};

// Never destroyed: operators may be called while the process ends.
struct Resolver {
  std::mutex mutex;
  // By full name. All operators are listed at once, because LibTorch can only list all.
  std::unordered_map<std::string, std::vector<std::string>> listed;
  std::unordered_map<std::string, Overloads> found;  // its nodes stay where they are

  static Resolver& instance() {
    static Resolver& resolver = *std::make_unique<Resolver>().release();
    return resolver;
  }

  void list() {
    listed.clear();
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
      listed[name.name].push_back(name.overload_name);
  }

  const std::vector<std::string>* overload_names(const std::string& name) const {
    const auto place = listed.find(name);
    return place == listed.end() ? nullptr : &place->second;
  }
};

bool comes_first(const Operator* one, const Operator* other) {
  const auto rank = [](const Operator* candidate) {
    size_t tensors = 0;
    for (const Parameter& parameter : candidate->parameters()) tensors += parameter.takes_tensor() ? 1 : 0;
    const std::string_view overload = candidate->overload();
    return std::make_tuple(tensors == 0, !overload.empty() && overload != "Tensor", -static_cast<int64_t>(tensors),
                           overload);
  };
  return rank(one) < rank(other);
}

// The key of a choice: the kinds of the arguments, of the items of lists, and what a string could name.
void add_kind(const Argument& argument, std::string& signature) {
  static constexpr char kLetters[] = "nbifstlmdv";  // in the order of Argument::Kind
  const Argument::Kind kind = argument.kind();
  if (kind == Argument::Kind::kString) {
    signature += Parameter::meaning_of(argument.as_string());
  } else if (kind != Argument::Kind::kList) {
    signature += kLetters[static_cast<size_t>(kind)];
  } else {
    std::string items;
    for (size_t index = 0; index < argument.size(); ++index) {
      std::string item;
      add_kind(argument[index], item);
      if (items.find(item) == std::string::npos) items += item;
    }
    signature += '[' + items + ']';
  }
}

std::string signature_of(const Argument* arguments, size_t num_arguments, const NamedArgument* named,
                         size_t num_named) {
  std::string signature;
  for (size_t index = 0; index < num_arguments; ++index) add_kind(arguments[index], signature);
  for (size_t index = 0; index < num_named; ++index) {
    signature.append(1, ',').append(named[index].name).append(1, '=');
    add_kind(named[index].value, signature);
  }
  return signature;
}

// The number of arguments that would be converted; nothing if the overload does not accept them.
std::optional<size_t> conversions(const Operator& candidate, const Argument* arguments, size_t num_arguments,
                                  const NamedArgument* named, size_t num_named) {
  const std::vector<Parameter>& parameters = candidate.parameters();
  size_t converted = 0, names_used = 0;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const Parameter& parameter = parameters[index];
    const Argument* given = index < num_arguments ? &arguments[index] : nullptr;
    if (given != nullptr && parameter.is_keyword_only()) return std::nullopt;
    for (size_t place = 0; place < num_named; ++place) {
      if (parameter.name() != named[place].name) continue;
      if (given != nullptr) return std::nullopt;  // twice
      given = &named[place].value;
      ++names_used;
    }
    if (given == nullptr) {
      if (!parameter.has_default()) return std::nullopt;
      continue;
    }
    const Parameter::Fit fit = parameter.fit(*given);
    if (fit == Parameter::Fit::kNone) return std::nullopt;
    converted += fit == Parameter::Fit::kConverted ? 1 : 0;
  }
  if (num_arguments > parameters.size() || names_used != num_named) return std::nullopt;
  return converted;
}

Overloads& find_overloads(Resolver& resolver, std::string_view name) {
  const auto known = resolver.found.find(std::string(name));
  if (known != resolver.found.end()) return known->second;
  std::vector<std::string> full_names;
  if (name.find("::") != std::string_view::npos) {
    full_names.emplace_back(name);
  } else {
    for (const std::string_view space : kDefaultNamespaces) full_names.push_back(text(space, name));
  }
  const std::string* full = nullptr;
  for (bool is_listed_anew = false; full == nullptr; is_listed_anew = true) {
    for (const std::string& candidate : full_names) {
      if (full == nullptr && resolver.overload_names(candidate) != nullptr) full = &candidate;
    }
    if (full != nullptr) break;
    if (is_listed_anew) refuse_operator_name(full_names.front(), "");
    resolver.list();  // for the first time, or because an operator may have been added since
  }
  Overloads& overloads = resolver.found[std::string(name)];
  for (const std::string& overload : *resolver.overload_names(*full))
    overloads.operators.push_back(&find_operator(*full, overload));
  std::sort(overloads.operators.begin(), overloads.operators.end(), comes_first);
  return overloads;
}

[[noreturn]] void refuse_arguments(std::string_view name, const Overloads& overloads, const Argument* arguments,
                                   size_t num_arguments, const NamedArgument* named, size_t num_named) {
  std::string given, known;
  for (size_t index = 0; index < num_arguments; ++index)
    given += text(given.empty() ? "" : ", ", Parameter::describe(arguments[index]));
  for (size_t index = 0; index < num_named; ++index)
    given += text(given.empty() ? "" : ", ", named[index].name, "=", Parameter::describe(named[index].value));
  const size_t shown = std::min(kMostOverloadsInError, overloads.operators.size());
  for (size_t index = 0; index < shown; ++index)
    known += text(index == 0 ? "" : "; ", overloads.operators[index]->schema());
  if (shown < overloads.operators.size()) known += text("; and ", overloads.operators.size() - shown, " more");
  fail(Status::kTypeMismatch, "no overload of ", name, " takes (", given, "); expected one of ", known);
}

}  // namespace

const Operator& resolve_operator(std::string_view name, const Argument* arguments, size_t num_arguments,
                                 const NamedArgument* named, size_t num_named) {
  Resolver& resolver = Resolver::instance();
  std::string signature = signature_of(arguments, num_arguments, named, num_named);
  const std::lock_guard<std::mutex> lock(resolver.mutex);
  Overloads& overloads = find_overloads(resolver, name);
  const auto remembered = overloads.chosen.find(signature);
  if (remembered != overloads.chosen.end()) return *remembered->second;

  const Operator* best = nullptr;
  size_t fewest = 0;
  for (const Operator* const candidate : overloads.operators) {
    const std::optional<size_t> converted = conversions(*candidate, arguments, num_arguments, named, num_named);
    if (!converted || (best != nullptr && *converted >= fewest)) continue;
    best = candidate;
    fewest = *converted;
  }
  if (best == nullptr) refuse_arguments(name, overloads, arguments, num_arguments, named, num_named);
  overloads.chosen.emplace(std::move(signature), best);
  return *best;
}

}  // namespace accel::tensor
