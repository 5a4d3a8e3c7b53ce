// SPDX-License-Identifier: Apache-2.0
// What one call of an operator of LibTorch computes and moves, from its arguments and results alone.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <string>
#include <vector>

namespace bench {

// A multiplication and an addition are two operations.
using FlopFormula = double (*)(c10::ArrayRef<c10::IValue> arguments);

// What is known of an operator before it is called.
struct OperatorKind {
  // A kernel of its own; others only call operators that have one, as linear does, or are nodes of autograd.
  bool has_kernel = false;
  bool is_autocast = false;  // under autocast it casts, and calls itself
  bool moves_bytes = false;  // views, and memory without values, move none
  bool has_results = true;
  std::vector<int> passes;             // over each argument: 0 for a result that is given, 2 for one that is changed
  FlopFormula flop_formula = nullptr;  // products, attention and convolutions have one
};

// `name` with its namespace. What is not an operator, as a node of autograd, has neither kernel nor work.
OperatorKind find_operator_kind(const std::string &name, const std::string &overload);

struct OperatorWork {
  double flops = 0;
  double bytes = 0;                                    // of tensors that are read, and of those that are written
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of the factors, else of the result or what is changed
};

OperatorWork work_of_arguments(const OperatorKind &kind, c10::ArrayRef<c10::IValue> arguments);
// Adds that of the results.
void add_results(const OperatorKind &kind, c10::ArrayRef<c10::IValue> results, OperatorWork &work);

}  // namespace bench
