// SPDX-License-Identifier: Apache-2.0
#include "tensor/tree.hpp"

#include <string>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/models/device.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/value.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::capi {
namespace {

at::Tensor call_tensor_function(const Callback<accel_tensor_fn>& function, const at::Tensor& tensor) {
  const TensorHandle given(new_tensor(tensor));
  accel_tensor_t* made = nullptr;
  function.checked("function", given.get(), &made);
  const TensorHandle result(made);
  return check(result.get(), "the tensor that function gave back").tensor;
}

// For functions that need only the tree.
template <typename Function>
accel_status_t apply(const char* name, const accel_value_t* value, accel_value_t* out, Function&& function,
                     const char* parameter = "value") {
  return guarded(name, [&] {
    check_pointer(value, parameter);
    check_pointer(out, "out");
    give(out, function(to_ivalue(*value, parameter)));
    return ACCEL_OK;
  });
}

std::vector<std::string> texts(const char* const* items, size_t count, const char* name) {
  check_array(items, count, name);
  std::vector<std::string> result;
  for (size_t i = 0; i < count; i++) result.emplace_back(check_pointer(items[i], name));
  return result;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_recursively_apply(const accel_value_t* value, int32_t error_on_other_type,
                                                      accel_tensor_fn function, void* user_data,
                                                      accel_destroy_fn destroy, accel_value_t* out) {
  return guarded(__func__, [&] {
    const Callback<accel_tensor_fn> callback(function, user_data, destroy);
    check_pointer(value, "value");
    check_pointer(function, "function");
    check_pointer(out, "out");
    const auto call = [&](const at::Tensor& tensor) { return call_tensor_function(callback, tensor); };
    const c10::IValue tree = to_ivalue(*value, "value");
    give(out, error_on_other_type != 0 ? tree::map_tensors_only(tree, call) : tree::map_tensors(tree, call));
  });
}

ACCEL_FUNCTION accel_status_t accel_listify(const accel_value_t* value, accel_value_t* out) {
  return apply(__func__, value, out, tree::listify);
}

ACCEL_FUNCTION accel_status_t accel_concatenate(const accel_value_t* items, int64_t dim, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(items, "items");
    return from_ivalue(tree::concatenate(to_ivalue(*items, "items"), dim));
  });
}

ACCEL_FUNCTION accel_status_t accel_slice_tensors(const accel_value_t* value, int64_t begin, int64_t end,
                                                  accel_value_t* out) {
  return apply(__func__, value, out, [&](const c10::IValue& tree) { return tree::slice(tree, begin, end); });
}

ACCEL_FUNCTION accel_status_t accel_pad_input_tensors(const accel_value_t* value, int64_t num_processes, int64_t dim,
                                                      accel_value_t* out) {
  return apply(__func__, value, out,
               [&](const c10::IValue& tree) { return tree::pad_to_multiple(tree, num_processes, dim); });
}

ACCEL_FUNCTION accel_status_t accel_send_to_device(const accel_value_t* value, const accel_device_t* device,
                                                   int32_t non_blocking, const char* const* skip_keys,
                                                   size_t n_skip_keys, accel_value_t* out) {
  return apply(__func__, value, out, [&](const c10::IValue& tree) {
    const c10::Device goal = to_device(device);
    const std::vector<std::string> skipped = texts(skip_keys, n_skip_keys, "skip_keys");
    tensor::require_device(goal);
    return tree::send_to_device(tree, goal, non_blocking != 0, skipped);
  });
}

ACCEL_FUNCTION accel_status_t accel_convert_to_fp32(const accel_value_t* value, accel_value_t* out) {
  return apply(__func__, value, out, tree::convert_to_fp32);
}

ACCEL_FUNCTION accel_status_t accel_find_batch_size(const accel_value_t* value, int64_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(value, "value");
    return tree::find_batch_size(to_ivalue(*value, "value"));
  });
}

ACCEL_FUNCTION accel_status_t accel_find_device(const accel_value_t* value, accel_value_t* out) {
  return apply(__func__, value, out, [](const c10::IValue& tree) {
    const auto device = tree::find_device(tree);
    return device ? c10::IValue(*device) : c10::IValue();
  });
}

ACCEL_FUNCTION accel_status_t accel_get_shape(const accel_value_t* value, accel_value_t* out) {
  return apply(__func__, value, out, tree::shapes);
}

ACCEL_FUNCTION accel_status_t accel_get_data_structure(const accel_value_t* value, accel_value_t* out) {
  return apply(__func__, value, out, [](const c10::IValue& tree) { return tree::empty_tensors(tree, at::kMeta); });
}

ACCEL_FUNCTION accel_status_t accel_initialize_tensors(const accel_value_t* structure, accel_value_t* out) {
  return apply(
      __func__, structure, out, [](const c10::IValue& tree) { return tree::empty_tensors(tree, at::kCPU); },
      "structure");
}

}  // namespace accel::capi
