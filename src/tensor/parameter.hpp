// SPDX-License-Identifier: Apache-2.0
// Parameter of an operator: converts an argument to the type of the schema. The schema is read once, when the operator
// is found; a call only switches on an enumeration.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>

#include "tensor/operators/argument.hpp"

namespace accel::tensor {

class Parameter {
 public:
  explicit Parameter(const c10::Argument& argument);  // of the dispatcher's schema, which is never freed

  const std::string& name() const { return argument_->name(); }
  // The text has the form of the schema: "int[2]? padding".
  std::string declaration() const;

  bool takes_tensor() const { return type_ == Type::kTensor; }  // or a list of them
  bool is_keyword_only() const { return argument_->kwarg_only(); }
  bool has_default() const { return argument_->default_value().has_value(); }

  enum class Fit : uint8_t { kNone, kConverted, kExact };
  Fit fit(const Argument& given) const;

  // Converts and pushes the argument; false if it does not fit.
  bool push(const Argument& given, torch::jit::Stack& stack) const;
  // False if there is no default.
  bool push_default(torch::jit::Stack& stack) const;

  // The meaning of a string for the parameter: dtype 'd', device 'v', layout 'y', memory format 'f', otherwise text
  // 's'.
  static char meaning_of(const char* string);

  static std::string describe(const Argument& given);  // "the integer 3"
  // The part that does not fit: "a list whose item 2 is a string ('x')".
  std::string describe_misfit(const Argument& given) const;

 private:
  // The supported types; others accept only None or their default.
  enum class Type : uint8_t {
    kTensor,
    kScalar,
    kInteger,
    kNumber,
    kBool,
    kString,
    kDtype,
    kLayout,
    kMemoryFormat,
    kDevice,
    kOther,
  };

  static Type type_of(const c10::Type& type);
  bool is_exact(const Argument& given) const;
  bool push_item(const Argument& given, torch::jit::Stack& stack) const;
  bool push_list(const Argument& given, torch::jit::Stack& stack) const;

  const c10::Argument* argument_;
  Type type_ = Type::kOther;
  bool is_optional_ = false;
  bool is_list_ = false;
  bool has_optional_items_ = false;
  c10::TypePtr item_type_;  // of a list
  int32_t list_size_ = 0;   // of "int[2]", for which a single value is repeated; 0: any size
};

}  // namespace accel::tensor
