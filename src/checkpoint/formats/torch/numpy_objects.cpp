// SPDX-License-Identifier: Apache-2.0
// Arrays and scalars as NumPy pickles them. An array becomes a tensor, which is a copy.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/formats/torch/pickle_arguments.hpp"
#include "checkpoint/formats/torch/pickle_objects.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"b1", at::kBool},  {"u1", at::kByte},   {"i1", at::kChar},         {"i2", at::kShort},          {"i4", at::kInt},
    {"i8", at::kLong},  {"u2", at::kUInt16}, {"u4", at::kUInt32},       {"u8", at::kUInt64},         {"f2", at::kHalf},
    {"f4", at::kFloat}, {"f8", at::kDouble}, {"c8", at::kComplexFloat}, {"c16", at::kComplexDouble},
};

// The names of functions, which have moved in NumPy 2.
std::string_view numpy_function(std::string_view name) {
  for (const std::string_view module :
       {"numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.core.numeric.", "numpy._core.numeric.", "numpy."}) {
    if (name.substr(0, module.size()) != module) continue;
    const std::string_view function = name.substr(module.size());
    for (const std::string_view known : {"_reconstruct", "scalar", "_frombuffer", "ndarray", "dtype"})
      if (function == known) return known;
  }
  return {};
}

PickleNode make_dtype(const std::string& name, const PickleItems& arguments) {
  const std::string* given = pickled_argument(name, arguments, 0).text();
  require(given != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(*arguments[0]));
  std::string_view code = *given;
  require(code.empty() || code[0] != '>', Status::kUnsupported, "a NumPy array is big-endian");
  if (!code.empty() && (code[0] == '<' || code[0] == '|' || code[0] == '=')) code.remove_prefix(1);
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& entry) { return entry.first == code; });
  require(found != std::end(kTypes), Status::kUnsupported, "a NumPy array has the dtype '", printable(*given),
          "'; expected bools, integers, floating or complex numbers");
  return {NumpyDtype{found->second}};
}

at::ScalarType dtype_of_node(const PickleNode& node) {
  const auto* const dtype = std::get_if<NumpyDtype>(&node.content);
  require(dtype != nullptr, Status::kCorrupt, "the dtype of a NumPy array is a ", kind_of(node));
  return dtype->dtype;
}

std::string_view bytes_of_node(const PickleNode& node) {
  if (node.bytes() != nullptr) return *node.bytes();
  require(node.text() != nullptr, Status::kCorrupt, "the elements of a NumPy array are a ", kind_of(node),
          "; expected bytes");
  return *node.text();  // a string of Python 2 that is UTF-8 as well
}

at::Tensor make_array(const std::vector<int64_t>& shape, at::ScalarType dtype, bool is_fortran,
                      std::string_view bytes) {
  uint64_t expected = c10::elementSize(dtype);
  bool fits = true;
  for (const int64_t size : shape)
    fits = fits && size >= 0 && !__builtin_mul_overflow(expected, static_cast<uint64_t>(size), &expected);
  require(fits && expected == bytes.size(), Status::kCorrupt, "a NumPy array of shape ", at::IntArrayRef(shape),
          " and ", dtype, " has ", bytes.size(), " bytes");
  const auto options = at::TensorOptions().dtype(dtype);
  if (bytes.empty()) return at::empty({0}, options).view(shape);
  std::vector<int64_t> stored = shape;
  if (is_fortran) std::reverse(stored.begin(), stored.end());
  const at::Tensor tensor = at::empty(stored, options);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return is_fortran ? tensor.permute([&] {
    std::vector<int64_t> order;
    for (auto i = static_cast<int64_t>(shape.size()); i-- > 0;) order.push_back(i);
    return order;
  }())
                    : tensor;
}

PickleNode make_scalar(const std::string& name, const PickleItems& arguments) {
  const at::ScalarType dtype = dtype_of_node(pickled_argument(name, arguments, 0));
  const at::Tensor element = make_array({}, dtype, false, bytes_of_node(pickled_argument(name, arguments, 1)));
  require(!at::isComplexType(dtype), Status::kUnsupported, "it has a complex number, which is not a kind of value");
  if (dtype == at::kBool) return {c10::IValue(element.item<bool>())};
  if (at::isFloatingType(dtype)) return {c10::IValue(element.item<double>())};
  if (dtype != at::kUInt64) return {c10::IValue(element.item<int64_t>())};
  const uint64_t number = *element.const_data_ptr<uint64_t>();
  require(number <= static_cast<uint64_t>(INT64_MAX), Status::kUnsupported, "the integer ", number,
          " does not fit 64 bits with a sign");
  return {c10::IValue(static_cast<int64_t>(number))};
}

// (buffer, dtype, shape, order)
PickleNode make_from_buffer(const std::string& name, const PickleItems& arguments) {
  const std::string* const order = pickled_argument(name, arguments, 3).text();
  require(order != nullptr && (*order == "C" || *order == "F"), Status::kUnsupported,
          "a NumPy array is neither in the order of C nor of Fortran");
  const std::vector<int64_t> shape = pickled_integers(*arguments[2], "the shape of a NumPy array");
  return {c10::IValue(make_array(shape, dtype_of_node(*arguments[1]), *order == "F", bytes_of_node(*arguments[0])))};
}

}  // namespace

bool is_numpy_name(const std::string& name) { return !numpy_function(name).empty(); }

PickleNode call_numpy_name(const std::string& name, const PickleItems& arguments) {
  const std::string_view function = numpy_function(name);
  if (function == "dtype") return make_dtype(name, arguments);
  if (function == "scalar") return make_scalar(name, arguments);
  if (function == "_frombuffer") return make_from_buffer(name, arguments);
  const std::string* const type = function == "_reconstruct" ? pickled_argument(name, arguments, 0).name() : nullptr;
  require(type != nullptr && numpy_function(*type) == "ndarray", Status::kUnsupported, "it makes an object of ", name,
          " that is not a plain array");
  return {NumpyArray{}};
}

void set_numpy_state(PickleNode& object, const PickleNode& state) {
  const PickleItems* const parts = state.tuple();
  if (std::holds_alternative<NumpyDtype>(object.content)) {
    // (version, byte order, subarray, names, fields, ...)
    require(parts != nullptr && parts->size() >= 5 && (*parts)[1]->text() != nullptr, Status::kCorrupt,
            "the state of a NumPy dtype is a ", kind_of(state));
    require(*(*parts)[1]->text() != ">", Status::kUnsupported, "a NumPy array is big-endian");
    require((*parts)[2]->is_none() && (*parts)[3]->is_none() && (*parts)[4]->is_none(), Status::kUnsupported,
            "a NumPy array has records");
    return;
  }
  auto* const array = std::get_if<NumpyArray>(&object.content);
  require(array != nullptr, Status::kUnsupported, "a ", kind_of(object), " has a state of Python");
  // (version, shape, dtype, whether it is in the order of Fortran, bytes)
  require(parts != nullptr && parts->size() == 5, Status::kCorrupt, "the state of a NumPy array is a ", kind_of(state));
  array->elements = make_array(pickled_integers(*(*parts)[1], "the shape of a NumPy array"),
                               dtype_of_node(*(*parts)[2]), (*parts)[3]->is_true(), bytes_of_node(*(*parts)[4]));
}

}  // namespace accel::checkpoint
