// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_objects.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/formats/torch/pickle_arguments.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "checkpoint/formats/torch/torch_tensors.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

using Call = PickleNode (*)(const std::string& name, const PickleItems& arguments);

PickleNode call_ordered_dict(const std::string& name, const PickleItems& arguments) {
  PickledMap map;
  if (arguments.empty()) return {map};
  const PickleItems* const pairs = pickled_argument(name, arguments, 0).items();  // of Python 2
  require(pairs != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(*arguments[0]),
          "; expected a list of pairs");
  for (const PickleNode* pair : *pairs) {
    require(pair->items() != nullptr && pair->items()->size() == 2, Status::kCorrupt, "a member of ", name,
            " is not a pair");
    map.members.emplace_back((*pair->items())[0], (*pair->items())[1]);
  }
  return {map};
}

// The milestones of a schedule, for example: a map with counts.
PickleNode call_counter(const std::string& name, const PickleItems& arguments) {
  if (arguments.empty()) return {PickledMap{}};
  const auto* const map = std::get_if<PickledMap>(&pickled_argument(name, arguments, 0).content);
  require(map != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(*arguments[0]),
          "; expected a map");
  return {*map};
}

// Its members follow; the function that makes new ones is left out.
PickleNode call_default_dict(const std::string&, const PickleItems&) { return {PickledMap{}}; }

PickleNode call_encode(const std::string& name, const PickleItems& arguments) {
  const std::string* const text = pickled_argument(name, arguments, 0).text();
  const std::string* const encoding = pickled_argument(name, arguments, 1).text();
  require(text != nullptr && encoding != nullptr && (*encoding == "latin1" || *encoding == "latin-1"),
          Status::kUnsupported, "bytes are not stored as text in Latin-1");
  return {tree::bytes_value(latin1_of(*text), "")};
}

PickleNode call_set(const std::string& name, const PickleItems& arguments) {
  if (arguments.empty()) return {PickledList{}};
  const PickleItems* const items = pickled_argument(name, arguments, 0).items();
  require(items != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(*arguments[0]));
  return {PickledList{*items}};
}

PickleNode call_bytes(const std::string& name, const PickleItems& arguments) {
  if (arguments.empty()) return {tree::bytes_value("", "")};
  const PickleNode& first = pickled_argument(name, arguments, 0);
  if (first.bytes() != nullptr) return {tree::bytes_value(*first.bytes(), "")};
  require(first.text() != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(first));
  return call_encode(name, arguments);
}

PickleNode call_size(const std::string& name, const PickleItems& arguments) {
  const PickleItems* const sizes = pickled_argument(name, arguments, 0).items();
  require(sizes != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(*arguments[0]));
  return {PickledTuple{*sizes}};
}

PickleNode call_device(const std::string& name, const PickleItems& arguments) {
  const std::string* const kind = pickled_argument(name, arguments, 0).text();
  require(kind != nullptr, Status::kCorrupt, "the argument of ", name, " is a ", kind_of(*arguments[0]));
  std::string full = *kind;
  if (arguments.size() > 1) full += ":" + std::to_string(pickled_integer(*arguments[1], "the index of a device"));
  try {
    return {c10::IValue(at::Device(full))};
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "'", printable(full), "' is not a device that is known here");
  }
}

PickleNode call_rebuild_tensor(const std::string& name, const PickleItems& arguments) {
  return {c10::IValue(make_tensor(name, arguments))};
}

// Attributes that a program gave to a tensor object of Python, which values lack: a map, or a pair of maps.
void warn_of_attributes(const PickleNode& state) {
  const auto has_members = [](const PickleNode& node) {
    const auto* const map = std::get_if<PickledMap>(&node.content);
    return !node.is_none() && (map == nullptr || !map->members.empty());
  };
  const PickleItems* const parts = state.tuple();
  const bool has_any = parts == nullptr ? has_members(state)
                                        : std::any_of(parts->begin(), parts->end(),
                                                      [&](const PickleNode* part) { return has_members(*part); });
  if (has_any) log(LogLevel::kWarning, "a tensor was saved with attributes of Python, which are left out");
}

PickleNode call_rebuild_parameter(const std::string& name, const PickleItems& arguments) {
  const c10::IValue* const value = pickled_argument(name, arguments, 0).value();
  require(value != nullptr && value->isTensor(), Status::kCorrupt, "the first argument of ", name, " is a ",
          kind_of(*arguments[0]), "; expected a tensor");
  if (arguments.size() > 3) warn_of_attributes(*arguments[3]);
  const at::Tensor& tensor = value->toTensor();
  if (arguments.size() > 1 && arguments[1]->is_true() && (tensor.is_floating_point() || tensor.is_complex()))
    tensor.set_requires_grad(true);
  return {*value};
}

// (function, class, arguments, attributes): a tensor with attributes, or of a class of the program's own.
PickleNode call_rebuild_from_type(const std::string& name, const PickleItems& arguments) {
  const std::string* const function = pickled_argument(name, arguments, 0).name();
  const std::string* const type = pickled_argument(name, arguments, 1).name();
  const PickleItems* const inner = pickled_argument(name, arguments, 2).tuple();
  require(function != nullptr && inner != nullptr && function->rfind("torch._utils._rebuild_", 0) == 0,
          Status::kCorrupt, "an argument of ", name, " is wrong");
  require(type != nullptr && (*type == "torch.Tensor" || *type == "torch.nn.parameter.Parameter"), Status::kUnsupported,
          "a tensor is of another class than Tensor and Parameter");
  if (arguments.size() > 3) warn_of_attributes(*arguments[3]);
  return call_pickled_name(*function, *inner);
}

PickleNode call_complex(const std::string&, const PickleItems&) {
  fail(Status::kUnsupported, "it has a complex number, which is not a kind of value; expected a complex tensor");
}

constexpr std::pair<std::string_view, Call> kCalls[] = {
    {"collections.OrderedDict", call_ordered_dict},
    {"collections.Counter", call_counter},
    {"collections.defaultdict", call_default_dict},
    {"_codecs.encode", call_encode},
    {"builtins.set", call_set},
    {"builtins.frozenset", call_set},
    {"builtins.bytearray", call_bytes},
    {"builtins.bytes", call_bytes},
    {"builtins.complex", call_complex},
    {"torch.Size", call_size},
    {"torch.device", call_device},
    {"torch._utils._rebuild_tensor", call_rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", call_rebuild_tensor},
    {"torch._utils._rebuild_tensor_v3", call_rebuild_tensor},
    {"torch._utils._rebuild_parameter", call_rebuild_parameter},
    {"torch._utils._rebuild_parameter_with_state", call_rebuild_parameter},
    {"torch._tensor._rebuild_from_type_v2", call_rebuild_from_type},
};

Call find_call(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kCalls), std::end(kCalls), [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kCalls) ? nullptr : found->second;
}

// Classes that are arguments.
constexpr std::string_view kClasses[] = {
    "torch.Tensor", "torch.nn.parameter.Parameter", "builtins.int", "builtins.float", "builtins.list", "builtins.dict"};

// "torch.float32"
const tensor::Dtype* find_torch_dtype(const std::string& name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.rfind(kTorch, 0) != 0) return nullptr;
  const std::string_view own = std::string_view(name).substr(kTorch.size());
  const tensor::Dtype* const found = tensor::find_dtype(own);
  return found != nullptr && own == found->name ? found : nullptr;
}

}  // namespace

bool find_pickled_name(const std::string& name, PickleNode& found) {
  if (const tensor::Dtype* const dtype = find_torch_dtype(name)) {
    found.content = tree::dtype_value(dtype->type);
    return true;
  }
  const bool is_known = find_call(name) != nullptr || storage_dtype(name).has_value() || is_numpy_name(name) ||
                        std::find(std::begin(kClasses), std::end(kClasses), name) != std::end(kClasses);
  if (is_known) found.content = PickledName{name};
  return is_known;
}

bool is_pickled_call(const std::string& name) { return find_call(name) != nullptr || is_numpy_name(name); }

PickleNode call_pickled_name(const std::string& name, const PickleItems& arguments) {
  if (const Call call = find_call(name)) return call(name, arguments);
  require(is_numpy_name(name), Status::kUnsupported, "it makes an object of ", name, ", which is not read");
  return call_numpy_name(name, arguments);
}

void set_pickled_state(PickleNode& object, const PickleNode& state) {
  if (!std::holds_alternative<PickledMap>(object.content)) {
    set_numpy_state(object, state);
    return;
  }
  // A state_dict has the versions of its modules as an attribute.
  const auto* const attributes = std::get_if<PickledMap>(&state.content);
  const bool is_known = attributes != nullptr &&
                        std::all_of(attributes->members.begin(), attributes->members.end(), [](const auto& member) {
                          return member.first->text() != nullptr && *member.first->text() == "_metadata";
                        });
  require(is_known, Status::kUnsupported, "a map has attributes of Python");
}

}  // namespace accel::checkpoint
