// SPDX-License-Identifier: Apache-2.0
// Section 6: operators and autograd.
#include "tensor/operators/operator.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/scope.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/value.hpp"
#include "capi/values/value_node.hpp"
#include "nn/operators.hpp"
#include "tensor/autograd/loss.hpp"
#include "tensor/device/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/operators/operator_resolution.hpp"
#include "tensor/tree.hpp"

// Not reference-counted and never released, so not an Object; its mark is at the same offset.
struct accel_op {
  static constexpr uint32_t kWord = 0xacce1005;

  const uint32_t word = kWord;
  const accel::tensor::Operator& engine;
};

namespace accel::capi {
namespace {

const accel_op_t* intern(const tensor::Operator& engine) {
  struct Interned {
    std::mutex mutex;
    std::unordered_map<const tensor::Operator*, const accel_op> operators;  // its nodes stay where they are
  };
  static Interned& interned = *std::make_unique<Interned>().release();  // the caller's pointers are valid for ever
  const std::lock_guard<std::mutex> lock(interned.mutex);
  return &interned.operators.try_emplace(&engine, accel_op{accel_op::kWord, engine}).first->second;
}

const tensor::Operator& check_operator(const accel_op_t* op) {
  check_pointer(op, "op");
  require(op->word == accel_op::kWord, Status::kInvalidHandle,
          "op is not an operator; expected what accel_op_find() gave");
  return op->engine;
}

tensor::Argument list_of(const c10::IValue& sequence);

// Converts an item of a container.
tensor::Argument to_argument(const c10::IValue& value) {
  using tensor::Argument;
  if (value.isTensor()) return value.toTensor().defined() ? Argument::tensor(value.toTensor()) : Argument();
  if (value.isInt()) return Argument::integer(value.toInt());
  if (value.isBool()) return Argument::boolean(value.toBool());
  if (value.isDouble()) return Argument::number(value.toDouble());
  if (value.isString()) return Argument::string(value.toStringRef().c_str());
  if (tree::is_sequence(value)) return list_of(value);
  if (value.isGenericDict()) return Argument::map();
  if (value.isDevice()) return Argument::device(value.toDevice());
  if (const auto dtype = tree::dtype_of(value)) return Argument::dtype(*dtype);
  return Argument();
}

tensor::Argument list_of(const c10::IValue& sequence) {
  const auto item = [](const void* list, size_t index) {
    return to_argument(tree::sequence_items(*static_cast<const c10::IValue*>(list))[index]);
  };
  return tensor::Argument::list(&sequence, tree::sequence_items(sequence).size(), item);
}

tensor::Argument to_argument(const accel_value_t& value) {
  using tensor::Argument;
  check_value(value, "value");
  switch (value.kind) {
    case ACCEL_VALUE_BOOL:
      return Argument::boolean(value.as.integer != 0);
    case ACCEL_VALUE_INT:
      return Argument::integer(value.as.integer);
    case ACCEL_VALUE_DOUBLE:
      return Argument::number(value.as.number);
    case ACCEL_VALUE_STRING:
      return Argument::string(value.as.string);
    case ACCEL_VALUE_TENSOR:
      return Argument::tensor(value.as.tensor->tensor);
    case ACCEL_VALUE_LIST:
    case ACCEL_VALUE_TUPLE:
      return list_of(value.as.node->container());
    case ACCEL_VALUE_MAP:
      return Argument::map();
    case ACCEL_VALUE_DTYPE:
      return Argument::dtype(tensor::dtype_from_number(value.as.dtype));
    case ACCEL_VALUE_DEVICE:
      return Argument::device(tensor::device_from_numbers({value.as.device.type, value.as.device.index}));
    default:
      return Argument();
  }
}

// `convert` makes the argument of an index; an error gets the operator and the place before it.
template <typename Item, typename Convert>
c10::SmallVector<Item, 8> to_arguments(std::string_view operator_name, const char* place, size_t count,
                                       Convert convert) {
  c10::SmallVector<Item, 8> arguments;
  arguments.reserve(count);
  try {
    while (arguments.size() < count) arguments.push_back(convert(arguments.size()));
  } catch (const Error& error) {
    fail(error.status(), operator_name, ": ", place, "[", arguments.size(), "]: ", error.message());
  }
  return arguments;
}

c10::SmallVector<tensor::Argument, 8> positional_arguments(std::string_view operator_name, const accel_value_t* args,
                                                           size_t n_args) {
  check_array(args, n_args, "args");
  return to_arguments<tensor::Argument>(operator_name, "args", n_args,
                                        [&](size_t index) { return to_argument(args[index]); });
}

c10::SmallVector<tensor::NamedArgument, 8> named_arguments(std::string_view operator_name, const char* const* names,
                                                           const accel_value_t* kwargs, size_t n_kwargs) {
  check_array(names, n_kwargs, "names");
  check_array(kwargs, n_kwargs, "kwargs");
  return to_arguments<tensor::NamedArgument>(operator_name, "kwargs", n_kwargs, [&](size_t index) {
    return tensor::NamedArgument{check_pointer(names[index], "name"), to_argument(kwargs[index])};
  });
}

template <typename Guard, typename... Arguments>
accel_status_t begin_guard(const char* function, accel_scope_t** out, Arguments... arguments) {
  return guarded(function, out, [&] { return open_scope<Guard>(arguments...); });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_op_find(const char* name, const char* overload, const accel_op_t** out) {
  return guarded(__func__, out, [&] {
    nn::register_operators();
    return intern(tensor::find_operator(check_pointer(name, "name"), check_pointer(overload, "overload")));
  });
}

ACCEL_FUNCTION accel_status_t accel_op_resolve(const char* name, const accel_value_t* args, size_t n_args,
                                               const char* const* names, const accel_value_t* kwargs, size_t n_kwargs,
                                               const accel_op_t** out) {
  return guarded(__func__, [&] {
    const std::string_view operator_name = check_pointer(name, "name");
    check_pointer(out, "out");
    nn::register_operators();
    const auto arguments = positional_arguments(operator_name, args, n_args);
    const auto named = named_arguments(operator_name, names, kwargs, n_kwargs);
    *out =
        intern(tensor::resolve_operator(operator_name, arguments.data(), arguments.size(), named.data(), named.size()));
  });
}

ACCEL_FUNCTION accel_status_t accel_op_call(const accel_op_t* op, const accel_value_t* args, size_t n_args,
                                            accel_value_t* results, size_t max_results, size_t* out_n_results) {
  return accel_op_call_kw(op, args, n_args, nullptr, nullptr, 0, results, max_results, out_n_results);
}

ACCEL_FUNCTION accel_status_t accel_op_call_kw(const accel_op_t* op, const accel_value_t* args, size_t n_args,
                                               const char* const* names, const accel_value_t* kwargs, size_t n_kwargs,
                                               accel_value_t* results, size_t max_results, size_t* out_n_results) {
  return guarded(__func__, [&] {
    const tensor::Operator& engine = check_operator(op);
    check_pointer(out_n_results, "out_n_results");
    const size_t num_results = engine.num_results();
    require(num_results <= max_results, Status::kInvalidArgument, engine.name(), " has ", num_results,
            " results and max_results is ", max_results, "; expected room for all of them");
    require(results != nullptr || num_results == 0, Status::kInvalidArgument, "results is NULL; expected room for ",
            num_results, " values");

    const auto arguments = positional_arguments(engine.name(), args, n_args);
    const auto named = named_arguments(engine.name(), names, kwargs, n_kwargs);
    const c10::Stack returned = engine.call(arguments.data(), arguments.size(), named.data(), named.size());

    c10::SmallVector<OwnedValue, 4> owned;
    for (const c10::IValue& value : returned) owned.emplace_back(from_ivalue(value));
    for (OwnedValue& value : owned) *results++ = value.release();
    *out_n_results = owned.size();
  });
}

ACCEL_FUNCTION const char* accel_op_schema(const accel_op_t* op) {
  return guarded_value(__func__, static_cast<const char*>(nullptr),
                       [&] { return check_operator(op).schema().c_str(); });
}

ACCEL_FUNCTION accel_status_t accel_op_list(const char* prefix, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    nn::register_operators();
    c10::List<c10::IValue> names = tree::new_list();
    for (std::string& name : tensor::operator_names(check_pointer(prefix, "prefix"))) names.push_back(std::move(name));
    return from_ivalue(names);
  });
}

ACCEL_FUNCTION accel_status_t accel_no_grad_begin(accel_scope_t** out) {
  return begin_guard<at::NoGradGuard>(__func__, out);
}

ACCEL_FUNCTION accel_status_t accel_enable_grad_begin(accel_scope_t** out) {
  return begin_guard<at::AutoGradMode>(__func__, out, true);
}

ACCEL_FUNCTION accel_status_t accel_inference_mode_begin(accel_scope_t** out) {
  return begin_guard<c10::InferenceMode>(__func__, out, true);
}

ACCEL_FUNCTION accel_status_t accel_cross_entropy(const accel_tensor_t* logits, const accel_tensor_t* labels,
                                                  accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const at::Tensor& scores = check(logits, "logits").tensor;
    const at::Tensor& classes = check(labels, "labels").tensor;
    return tensor::cross_entropy(scores, classes);
  });
}

ACCEL_FUNCTION accel_status_t accel_mse_loss(const accel_tensor_t* input, const accel_tensor_t* target,
                                             accel_tensor_t** out) {
  return guarded(__func__, out,
                 [&] { return tensor::mse_loss(check(input, "input").tensor, check(target, "target").tensor); });
}

ACCEL_FUNCTION accel_status_t accel_l1_loss(const accel_tensor_t* input, const accel_tensor_t* target,
                                            accel_tensor_t** out) {
  return guarded(__func__, out,
                 [&] { return tensor::l1_loss(check(input, "input").tensor, check(target, "target").tensor); });
}

ACCEL_FUNCTION accel_status_t accel_huber_loss(const accel_tensor_t* input, const accel_tensor_t* target, double delta,
                                               accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    return tensor::huber_loss(check(input, "input").tensor, check(target, "target").tensor, delta);
  });
}

ACCEL_FUNCTION accel_status_t accel_binary_cross_entropy_with_logits(const accel_tensor_t* logits,
                                                                     const accel_tensor_t* target,
                                                                     accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    return tensor::binary_cross_entropy_with_logits(check(logits, "logits").tensor, check(target, "target").tensor);
  });
}

ACCEL_FUNCTION accel_status_t accel_set_float32_matmul_precision(const char* precision) {
  return guarded(__func__, [&] {
    const std::string_view name = check_pointer(precision, "precision");
    require(name == "highest" || name == "high" || name == "medium", Status::kInvalidArgument, "precision is '", name,
            "'; expected highest, high or medium");
    at::globalContext().setFloat32MatmulPrecision(std::string(name));
  });
}

}  // namespace accel::capi
