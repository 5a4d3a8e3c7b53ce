// SPDX-License-Identifier: Apache-2.0
#include "nn/torchscript_module.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/first_line.hpp"
#include "nn/creation_device.hpp"
#include "nn/module_walks.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/lack_of_memory.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// A script may change its containers in place, and those of the application are shared with it: it works on copies,
// also of what it returns. Element types are LibTorch's numbers there.
c10::IValue copied(const c10::IValue& value) {
  if (const auto dtype = tree::dtype_of(value)) return static_cast<int64_t>(*dtype);
  if (tree::is_sequence(value)) {
    std::vector<c10::IValue> items;
    for (const c10::IValue& item : tree::sequence_items(value)) items.push_back(copied(item));
    return tree::sequence_like(value, std::move(items));
  }
  if (!value.isGenericDict()) return value;
  std::vector<std::pair<c10::IValue, c10::IValue>> members;
  for (const auto& member : value.toGenericDict()) members.emplace_back(member.key(), copied(member.value()));
  return tree::new_map(std::move(members));
}

// Values as a script's signature wants them: our lists and maps carry no element type, its do.
c10::IValue fit(const c10::IValue& value, const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>())
    return value.isNone() ? value : fit(value, optional->getElementType());
  if (type->kind() == c10::TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
  if (const auto list_type = type->cast<c10::ListType>(); list_type != nullptr && tree::is_sequence(value)) {
    c10::impl::GenericList list(list_type->getElementType());
    for (const c10::IValue& item : tree::sequence_items(value)) list.push_back(fit(item, list_type->getElementType()));
    return list;
  }
  if (const auto tuple_type = type->cast<c10::TupleType>();
      tuple_type != nullptr && tree::is_sequence(value) &&
      tree::sequence_items(value).size() == tuple_type->elements().size()) {
    std::vector<c10::IValue> items;
    for (const c10::IValue& item : tree::sequence_items(value))
      items.push_back(fit(item, tuple_type->elements()[items.size()]));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  if (const auto dict_type = type->cast<c10::DictType>(); dict_type != nullptr && value.isGenericDict()) {
    c10::impl::GenericDict dict(dict_type->getKeyType(), dict_type->getValueType());
    for (const auto& entry : value.toGenericDict())
      dict.insert(entry.key(), fit(entry.value(), dict_type->getValueType()));
    return dict;
  }
  return copied(value);
}

std::string class_name(const torch::jit::Module& script) {
  const auto name = script.type()->name();
  return name ? name->name() : "ScriptModule";
}

class TorchScriptModule final : public Module {
 public:
  TorchScriptModule(torch::jit::Module script, bool is_root, bool is_frozen)
      : Module(class_name(script)), script_(std::move(script)), is_root_(is_root), is_frozen_(is_frozen) {
    for (const auto& [name, tensor] : script_.named_parameters(/*recurse=*/false))
      add_parameter(name, tensor, tensor.requires_grad());
    for (const auto& [name, tensor] : script_.named_buffers(/*recurse=*/false)) add_buffer(name, tensor);
    has_training_flag_ = script_.hasattr("training");
  }

  // A tensor, and what is in its place.
  using Moved = std::unordered_map<const at::TensorImpl*, std::pair<at::Tensor, at::Tensor>>;

  // Tensors as new ones, where a scope asks for another device. Tied ones stay so.
  void place_as_new(Moved& moved) {
    const auto place = [&](const std::string& name, const at::Tensor& tensor, at::Tensor (*as_new)(at::Tensor)) {
      auto& [original, placed] = moved[tensor.unsafeGetTensorImpl()];
      if (!placed.defined()) std::tie(original, placed) = std::pair(tensor, as_new(tensor));
      if (placed.is_same(tensor)) return;
      placed.set_requires_grad(tensor.requires_grad());
      replace_tensor(name, placed);
    };
    for (const auto& [name, tensor] : script_.named_parameters(/*recurse=*/false))
      place(name, tensor, as_new_parameter);
    for (const auto& [name, tensor] : script_.named_buffers(/*recurse=*/false)) place(name, tensor, as_new_buffer);
  }

  std::vector<std::string> input_names() const override {
    std::vector<std::string> names;
    const auto method = script_.find_method("forward");
    if (!method) return names;
    const auto& arguments = method->function().getSchema().arguments();
    for (size_t i = 1; i < arguments.size(); i++) names.push_back(arguments[i].name());  // 0 is self
    return names;
  }

 protected:
  c10::IValue absent_input(size_t place) const override {
    const c10::Argument& argument = script_.get_method("forward").function().getSchema().arguments()[place + 1];
    require(argument.default_value().has_value(), Status::kInvalidArgument, "TorchScript module '", kind(),
            "' was called without its input '", argument.name(), "', which has no default");
    return *argument.default_value();
  }

  c10::IValue forward(const Inputs& inputs) override {
    const auto method = script_.find_method("forward");
    require(method.has_value(), Status::kInvalidState, "TorchScript module '", kind(),
            "' has no forward; it cannot be called");
    const std::vector<c10::Argument>& arguments = method->function().getSchema().arguments();
    std::vector<c10::IValue> stack;
    stack.reserve(arguments.size());
    for (size_t i = 0; i < inputs.size(); i++)  // arguments[0] is self
      stack.push_back(i + 1 < arguments.size() ? fit(inputs[i], arguments[i + 1].type()) : copied(inputs[i]));
    return copied((*method)(std::move(stack)));
  }

  void training_changed() override {
    if (is_frozen_ && is_training()) {
      train(false);
      fail(Status::kUnsupported, "the TorchScript module '", kind(),
           "' was optimized for inference and cannot be trained; load it without optimize_for_inference");
    }
    if (has_training_flag_) script_.setattr("training", is_training());
  }

  void parameter_replaced(const std::string& name, const at::Tensor& tensor) override { script_.setattr(name, tensor); }

  void check_hookable() const override {
    require(is_root_, Status::kUnsupported, "'", kind(),
            "' is inside of a TorchScript module, whose saved code calls it "
            "directly; put the hook on the whole module");
  }

 private:
  torch::jit::Module script_;
  bool is_root_;
  bool is_frozen_;
  bool has_training_flag_ = false;
};

using Nodes = std::unordered_map<const c10::ivalue::Object*, ModulePtr>;

ModulePtr wrap(const torch::jit::Module& script, bool is_root, bool is_frozen, Nodes& nodes) {
  ModulePtr& node = nodes[script._ivalue().get()];
  if (node != nullptr) return node;  // one module under two names
  const auto module = std::make_shared<TorchScriptModule>(script, is_root, is_frozen);
  node = module;
  for (const auto& [name, child] : script.named_children())
    module->add_child(name, wrap(child, false, is_frozen, nodes));
  return module;
}

// The file format stores tied parameters as two tensors with the same memory; training needs one tensor.
void restore_ties(Module& root) {
  NamedTensors first_names;
  for (const auto& [name, tensor] : nn::named_parameters(root)) {
    const auto same_memory = [&tensor = tensor](const NamedTensor& other) {
      return tensor.numel() > 0 && other.second.is_alias_of(tensor) &&
             other.second.storage_offset() == tensor.storage_offset() && other.second.sizes() == tensor.sizes() &&
             other.second.strides() == tensor.strides();
    };
    const auto first = std::find_if(first_names.begin(), first_names.end(), same_memory);
    if (first == first_names.end()) {
      first_names.emplace_back(name, tensor);
    } else {
      nn::tie(root, name, first->first);
    }
  }
}

torch::jit::Module optimized(torch::jit::Module script, const std::string& path) {
  try {
    script.eval();
    torch::jit::Module frozen = torch::jit::freeze(script);
    return torch::jit::optimize_for_inference(frozen);
  } catch (const c10::Error& error) {
    if (tensor::means_no_memory(error)) throw;
    fail(Status::kUnsupported, "the TorchScript file '", path,
         "' cannot be optimized for inference: ", first_line(error.what_without_backtrace()),
         "; load it without optimize_for_inference");
  }
}

}  // namespace

ModulePtr load_torchscript(const std::string& path, const TorchscriptSettings& settings) {
  std::error_code code;
  require(std::filesystem::is_regular_file(path, code), Status::kNotFound, "TorchScript file '", path,
          "' is not there; expected what torch.jit.save() wrote");
  const c10::Device device = tensor::parse_device(settings.device.value.empty() ? "cpu" : settings.device.value);
  tensor::require_device(device);
  const auto corrupt = [&](const std::string& reason) {
    fail(Status::kCorrupt, "TorchScript file '", path, "' cannot be read: ", reason);
  };
  ModulePtr root;
  try {
    Nodes nodes;
    {
      const CreationDevice as_in_the_file(std::nullopt, /*include_buffers=*/true);  // ties are found by the memory
      const bool is_frozen = settings.optimize_for_inference;
      const torch::jit::Module script = torch::jit::load(path, device);
      root = wrap(is_frozen ? optimized(script, path) : script, true, is_frozen, nodes);
      restore_ties(*root);
    }
    TorchScriptModule::Moved moved;
    for (const auto& [object, node] : nodes) dynamic_cast<TorchScriptModule&>(*node).place_as_new(moved);
    if (settings.optimize_for_inference) root->train(false);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    if (tensor::means_no_memory(error)) throw;
    corrupt(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {  // of the parser of scripts, and of the standard library below it
    corrupt(first_line(error.what()));
  }
  return root;
}

}  // namespace accel::nn
