// SPDX-License-Identifier: Apache-2.0
#include "tensor/operators/operator.hpp"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "tensor/operators/operator_suggestions.hpp"

namespace accel::tensor {
namespace {

std::string full_name(std::string_view name, std::string_view overload) {
  return overload.empty() ? std::string(name) : text(name, ".", overload);
}

struct OperatorCache {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, Operator> operators;  // its nodes stay where they are
};

// Never destroyed: operators may be called while the process ends.
OperatorCache& operator_cache() {
  static OperatorCache& cache = *std::make_unique<OperatorCache>().release();
  return cache;
}

}  // namespace

Operator::Operator(c10::OperatorHandle handle) : handle_(std::move(handle)), schema_(text(handle_.schema())) {
  const c10::FunctionSchema& schema = handle_.schema();
  name_ = full_name(schema.name(), schema.overload_name());
  parameters_.reserve(schema.arguments().size());
  for (const c10::Argument& argument : schema.arguments()) parameters_.emplace_back(argument);
}

c10::Stack Operator::call(const Argument* arguments, size_t num_arguments, const NamedArgument* named,
                          size_t num_named) const {
  const size_t num_parameters = parameters_.size();
  require(num_arguments <= num_parameters, Status::kInvalidArgument, name_, " was given ", num_arguments,
          " arguments; expected at most ", num_parameters, ": ", schema_);
  if (num_named > 0) check_names(num_arguments, named, num_named);

  c10::Stack stack;
  stack.reserve(std::max(num_parameters, num_results()) + 1);  // one more for the item of a list
  for (size_t index = 0; index < num_arguments; ++index) {
    if (!parameters_[index].push(arguments[index], stack)) refuse_argument(index, arguments[index]);
  }
  for (size_t index = num_arguments; index < num_parameters; ++index) {
    const Parameter& parameter = parameters_[index];
    if (const NamedArgument* const given = find_named(named, num_named, parameter.name())) {
      if (!parameter.push(given->value, stack)) refuse_argument(index, given->value);
    } else if (!parameter.push_default(stack)) {
      fail(Status::kInvalidArgument, name_, " lacks argument ", index, " (", parameter.name(),
           "), which has no default; expected ", parameter.declaration(), " in ", schema_);
    }
  }
  handle_.callBoxed(stack);
  for (c10::IValue& result : stack) {
    if (result.isTensor() && !result.toTensor().defined()) result = c10::IValue();
  }
  return stack;
}

const NamedArgument* Operator::find_named(const NamedArgument* named, size_t num_named,
                                          const std::string& parameter) const {
  const NamedArgument* const end = named + num_named;
  const NamedArgument* const found =
      std::find_if(named, end, [&](const NamedArgument& argument) { return parameter == argument.name; });
  return found == end ? nullptr : found;
}

void Operator::check_names(size_t num_arguments, const NamedArgument* named, size_t num_named) const {
  for (size_t place = 0; place < num_named; ++place) {
    const std::string_view name = named[place].name;
    const auto parameter = std::find_if(parameters_.begin(), parameters_.end(),
                                        [&](const Parameter& candidate) { return candidate.name() == name; });
    require(parameter != parameters_.end(), Status::kNotFound, name_, " has no argument '", name,
            "'; expected a name of ", schema_);
    const bool is_repeated = find_named(named, place, parameter->name()) != nullptr;
    const bool is_by_position = static_cast<size_t>(parameter - parameters_.begin()) < num_arguments;
    require(!is_repeated && !is_by_position, Status::kInvalidArgument, name_, " was given argument ",
            parameter - parameters_.begin(), " (", name, ") twice; expected it by position or by name, once");
  }
}

void Operator::refuse_argument(size_t index, const Argument& given) const {
  const Parameter& parameter = parameters_[index];
  fail(Status::kTypeMismatch, name_, ": argument ", index, " (", parameter.name(), ") is ",
       parameter.describe_misfit(given), "; expected ", parameter.declaration());
}

const Operator& find_operator(std::string_view name, std::string_view overload) {
  OperatorCache& cache = operator_cache();
  const c10::OperatorName key{std::string(name), std::string(overload)};
  const std::lock_guard<std::mutex> lock(cache.mutex);
  const auto found = cache.operators.find(key);
  if (found != cache.operators.end()) return found->second;
  const std::optional<c10::OperatorHandle> handle = c10::Dispatcher::singleton().findSchema(key);
  if (!handle) refuse_operator_name(name, overload);
  return cache.operators.try_emplace(key, *handle).first->second;
}

std::vector<std::string> operator_names(std::string_view prefix) {
  std::vector<std::string> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    std::string full = full_name(name.name, name.overload_name);
    if (full.compare(0, prefix.size(), prefix) == 0) names.push_back(std::move(full));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace accel::tensor
