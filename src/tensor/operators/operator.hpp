// SPDX-License-Identifier: Apache-2.0
// Operator: any operator of LibTorch by its name, called through the boxed dispatcher, with autograd, autocast and
// devices.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

#include "tensor/parameter.hpp"

namespace accel::tensor {

struct NamedArgument {
  const char* name;
  Argument value;
};

class Operator {
 public:
  explicit Operator(c10::OperatorHandle handle);

  const std::string& name() const { return name_; }  // "aten::add.Tensor"
  std::string_view overload() const { return handle_.schema().overload_name(); }
  const std::string& schema() const { return schema_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  size_t num_results() const { return handle_.schema().returns().size(); }

  // Returns one result for each of the schema; undefined tensors are None. Positional arguments come first, in the
  // schema's order; missing ones have their defaults.
  c10::Stack call(const Argument* arguments, size_t num_arguments, const NamedArgument* named, size_t num_named) const;

 private:
  const NamedArgument* find_named(const NamedArgument* named, size_t num_named, const std::string& parameter) const;
  void check_names(size_t num_arguments, const NamedArgument* named, size_t num_named) const;
  [[noreturn]] void refuse_argument(size_t index, const Argument& given) const;

  c10::OperatorHandle handle_;
  std::vector<Parameter> parameters_;
  std::string name_;
  std::string schema_;
};

// Found once per name and cached until the process ends. Throws kNotFound with the overloads, or with similar names.
const Operator& find_operator(std::string_view name, std::string_view overload);

// The full names that begin with `prefix`, sorted.
std::vector<std::string> operator_names(std::string_view prefix);

}  // namespace accel::tensor
