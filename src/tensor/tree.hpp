// SPDX-License-Identifier: Apache-2.0
// Functions on nested values: trees of lists, tuples and maps whose leaves are tensors, numbers, strings. @accelerate
// utils.operations
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::tree {

// Values may come from outside: all functions refuse deeper ones, which would exhaust the stack.
constexpr int kDeepest = 200;

using LeafFunction = std::function<c10::IValue(const c10::IValue&)>;
using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

// Each leaf in order: lists by index, maps by insertion.
void for_each_leaf(const c10::IValue& value, const std::function<void(const c10::IValue&)>& visit);
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

// Applies a function to each leaf of a tree.
c10::IValue map_leaves(const c10::IValue& value, const LeafFunction& function);
// Applies a function to each tensor; other leaves stay.
c10::IValue map_tensors(const c10::IValue& value, const TensorFunction& function);
// Applies a function to each leaf; one that is not a tensor is a TYPE_MISMATCH.
c10::IValue map_tensors_only(const c10::IValue& value, const TensorFunction& function);

// Concatenates trees of one structure, tensor by tensor. `items` is a list of trees. A single tree is returned as it
// is.
c10::IValue concatenate(const c10::IValue& items, int64_t dim);
// Rows [begin, end) as in Python: negative indices count from the end, too large ones are clipped.
c10::IValue slice(const c10::IValue& value, int64_t begin, int64_t end);
// Pads each tensor with zeros at the end, to the next multiple of `divisor` in dimension `dim`.
c10::IValue pad_to_multiple(const c10::IValue& value, int64_t divisor, int64_t dim);
// Values under the map keys `skip_keys` are not moved.
c10::IValue send_to_device(const c10::IValue& value, c10::Device device, bool non_blocking,
                           const std::vector<std::string>& skip_keys);
// float16 and bfloat16 tensors become float32.
c10::IValue convert_to_fp32(const c10::IValue& value);
// Tensors become nested lists of numbers: bools and integers exactly, every floating type as a double.
c10::IValue listify(const c10::IValue& value);
// The number of rows of the first leaf; an empty container before it is an error, as in Accelerate.
int64_t find_batch_size(const c10::IValue& value);
// The device of the first tensor.
std::optional<c10::Device> find_device(const c10::IValue& value);
// Each tensor's shape as a list of integers. Leaves that are not a tensor are a TYPE_MISMATCH, as in the next one.
c10::IValue shapes(const c10::IValue& value);
c10::IValue empty_tensors(const c10::IValue& value, c10::Device device);  // not initialised
// Compares kinds, structure and values; tensors by dtype, shape and elements, on any device. NaN differs from itself.
bool equal(const c10::IValue& a, const c10::IValue& b);

// One line. Tensors become nested lists, tuples arrays, devices text. Values without JSON (infinity, NaN, bytes,
// integer keys) are a TYPE_MISMATCH.
std::string to_json(const c10::IValue& value);
// `source` names the text in errors. Numbers without fraction and exponent become exact integers. Of equal keys the
// last one is used.
c10::IValue from_json(const std::string& json, const std::string& source);

bool is_sequence(const c10::IValue& value);  // a list or tuple
c10::ArrayRef<c10::IValue> sequence_items(const c10::IValue& sequence);
c10::List<c10::IValue> new_list();
c10::List<c10::IValue> new_list(std::vector<c10::IValue> items);
c10::IValue new_tuple(std::vector<c10::IValue> items);
// A sequence of the same kind.
c10::IValue sequence_like(const c10::IValue& sequence, std::vector<c10::IValue> items);
c10::impl::GenericDict new_map();
// Keys are strings or integers, a type that TorchScript requires.
c10::impl::GenericDict new_map(std::vector<std::pair<c10::IValue, c10::IValue>> members);
// A member of a map by its text; null if it is not there or None, and of what is not a map.
const c10::IValue* find_member(const c10::IValue& map, const char* key);
// The path of a member: "state.0.exp_avg".
inline std::string path_below(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}
// "tensor", "list", "int", ... for messages.
std::string kind_name(const c10::IValue& value);

}  // namespace accel::tree
