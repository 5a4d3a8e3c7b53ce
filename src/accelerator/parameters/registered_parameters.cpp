// SPDX-License-Identifier: Apache-2.0
#include "accelerator/parameters/registered_parameters.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/name_list.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/dtype.hpp"

namespace accel::accelerator {
namespace {

constexpr const char* kLevel = "Parameters";  // the kind of the modules

bool is_trainable_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kDouble;
}

bool is_same_device(c10::Device one, c10::Device other) { return one == other || (one.is_cpu() && other.is_cpu()); }

// The device of the first parameter, on which the others must be too.
c10::Device device_of(const nn::NamedTensors& tensors, c10::Device of_state) {
  const auto& [name, tensor] = tensors.front();
  require(tensor.is_cpu() || is_same_device(tensor.device(), of_state), Status::kUnsupported, "parameter '", name,
          "' is on ", tensor.device(), " and the state on ", of_state, "; expected that device or the CPU");
  return tensor.is_cpu() ? c10::Device(c10::kCPU) : tensor.device();
}

void check_tensor(const std::string& name, const at::Tensor& tensor, c10::Device device) {
  require(is_trainable_dtype(tensor.scalar_type()), Status::kTypeMismatch, "parameter '", name, "' is of dtype ",
          tensor::dtype_name(tensor.scalar_type()), "; expected float16, bfloat16, float32 or float64");
  require(is_same_device(tensor.device(), device), Status::kUnsupported, "parameter '", name, "' is on ",
          tensor.device(), " and others on ", device,
          "; expected all on one device, because the memory stays where it is");
  require(tensor.layout() == at::kStrided && tensor.is_contiguous(), Status::kUnsupported, "parameter '", name,
          "' of shape ", tensor.sizes(), " is not contiguous; expected memory in the order of its elements");
}

// "cpu:0" is the CPU, but LibTorch would copy to "cpu".
at::Tensor without_index(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.device().has_index()) return tensor;
  return tensor::from_blob(tensor.mutable_data_ptr(), tensor.sizes().vec(), tensor.strides().data(),
                           tensor.scalar_type(), at::kCPU, std::make_shared<at::Tensor>(tensor));
}

// Names are levels of modules: "layers.0.weight".
void check_names(const nn::NamedTensors& sorted) {
  for (const auto& [name, tensor] : sorted) {
    const bool has_empty_level =
        name.empty() || name.front() == '.' || name.back() == '.' || name.find("..") != std::string::npos;
    require(!has_empty_level, Status::kInvalidArgument, "name '", name,
            "' has an empty level; expected texts between the dots, such as 'layers.0.weight'");
  }
  for (const auto& [name, tensor] : sorted) {
    const std::string below = name + ".";
    const auto inner = std::lower_bound(sorted.begin(), sorted.end(), below,
                                        [](const auto& entry, const std::string& text) { return entry.first < text; });
    require(inner == sorted.end() || inner->first.compare(0, below.size(), below) != 0, Status::kInvalidArgument,
            "parameter '", name, "' has the name of the level that '", inner == sorted.end() ? "" : inner->first,
            "' is on; expected another name for one of them");
  }
}

struct Chunk {
  uintptr_t begin, end;
  const std::string* name;
  bool is_registered;  // by an earlier call
};

void add_chunks(const nn::NamedTensors& tensors, bool is_registered, std::vector<Chunk>& chunks) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    chunks.push_back({begin, begin + tensor.nbytes(), &name, is_registered});
  }
}

void require_disjoint(std::vector<Chunk> chunks) {
  std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < chunks.size(); i++) {
    if (chunks[i - 1].end <= chunks[i].begin) continue;
    const bool first_is_new = chunks[i].is_registered;
    const Chunk& added = first_is_new ? chunks[i - 1] : chunks[i];
    const Chunk& other = first_is_new ? chunks[i] : chunks[i - 1];
    require(!other.is_registered, Status::kInvalidArgument, "parameter '", *added.name,
            "' is in memory that is registered already, as '", *other.name,
            "'; expected each block of memory once until accel_free_memory()");
    fail(Status::kInvalidArgument, "parameters '", *other.name, "' and '", *added.name,
         "' share memory; expected one name for each block of memory");
  }
}

std::string nearest_name(const std::vector<TrainedParameter>& parameters, const std::string& name) {
  return std::min_element(parameters.begin(), parameters.end(),
                          [&name](const TrainedParameter& one, const TrainedParameter& other) {
                            return edit_distance(name, one.name) < edit_distance(name, other.name);
                          })
      ->name;
}

void check_gradient(const TrainedParameter& parameter, const at::Tensor& gradient) {
  require(gradient.sizes() == parameter.shape, Status::kShapeMismatch, "the gradient of '", parameter.name,
          "' has shape ", gradient.sizes(), "; expected ", c10::IntArrayRef(parameter.shape));
  require(gradient.is_floating_point(), Status::kTypeMismatch, "the gradient of '", parameter.name, "' is of dtype ",
          tensor::dtype_name(gradient.scalar_type()), "; expected a floating dtype, such as that of the parameter, ",
          tensor::dtype_name(parameter.tensor.scalar_type()));
  require(gradient.layout() == at::kStrided && !gradient.is_meta(), Status::kTypeMismatch, "the gradient of '",
          parameter.name, "' is ", gradient.is_meta() ? "without memory" : "sparse", "; expected a dense tensor");
}

nn::ModulePtr module_over(const nn::NamedTensors& tensors) {
  const nn::ModulePtr root = std::make_shared<nn::CallbackModule>(kLevel);
  std::unordered_map<std::string, nn::ModulePtr> levels;
  for (const auto& [name, tensor] : tensors) {
    nn::ModulePtr owner = root;
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; begin = dot + 1, dot = name.find('.', begin)) {
      nn::ModulePtr& level = levels[name.substr(0, dot)];
      if (level == nullptr) {
        level = std::make_shared<nn::CallbackModule>(kLevel);
        owner->add_child(name.substr(begin, dot - begin), level);
      }
      owner = level;
    }
    // Detached: a sharded parameter gets other data, and this memory stays whole.
    const size_t index = owner->add_parameter(name.substr(begin), tensor.detach());
    require(owner->parameter(index).is_alias_of(tensor), Status::kInvalidState, "parameter '", name,
            "' was moved to another device by a scope that creates models without memory; expected the end of that "
            "scope first");
  }
  return root;
}

}  // namespace

RegisteredMemory::RegisteredMemory(nn::NamedTensors tensors, c10::Device of_state) : tensors_(std::move(tensors)) {
  require(!tensors_.empty(), Status::kInvalidArgument,
          "tensors is empty; expected the parameters that are to be trained, by their names");
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  check_names(tensors_);
  device_ = device_of(tensors_, of_state);
  for (auto& [name, tensor] : tensors_) {
    check_tensor(name, tensor, device_);
    tensor = without_index(tensor).detach();  // the tensor of the application does not become a parameter itself
  }
  std::vector<Chunk> chunks;
  add_chunks(tensors_, /*is_registered=*/false, chunks);
  require_disjoint(std::move(chunks));
  module_ = module_over(tensors_);
  for (const auto& [name, tensor] : tensors_) {
    memory_.push_back(tensor);
    parameters_.push_back(nn::find_tensor(*module_, name));
  }
}

void RegisteredMemory::require_apart_from(const RegisteredMemory& registered) const {
  std::vector<Chunk> chunks;
  add_chunks(registered.tensors_, /*is_registered=*/true, chunks);
  add_chunks(tensors_, /*is_registered=*/false, chunks);
  require_disjoint(std::move(chunks));
}

void RegisteredMemory::gather(parallel::ParallelModel& model) const {
  if (auto* const parts = model.parts()) parts->gather_into(parameters_, memory_);
}

std::vector<TrainedParameter> trained_parameters(const nn::Module& module) {
  std::vector<TrainedParameter> trained;
  for (const auto& [name, parameter] : nn::named_parameters(module))
    if (parameter.requires_grad()) trained.push_back({name, parameter, parameter.sizes().vec()});
  return trained;
}

std::vector<at::Tensor> arrange_gradients(const std::vector<TrainedParameter>& parameters,
                                          const nn::NamedTensors& given, bool allow_missing) {
  std::unordered_map<std::string_view, size_t> indices;
  for (size_t i = 0; i < parameters.size(); i++) indices.emplace(parameters[i].name, i);
  std::vector<at::Tensor> gradients(parameters.size());
  for (const auto& [name, gradient] : given) {
    const auto found = indices.find(name);
    if (found == indices.end())
      fail(Status::kInvalidArgument, "gradients has '", name,
           "', which is not a trainable parameter; expected names such as '", nearest_name(parameters, name), "'");
    check_gradient(parameters[found->second], gradient);
    gradients[found->second] = gradient;
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < parameters.size(); i++)
    if (!gradients[i].defined() && parameters[i].tensor.requires_grad()) missing.push_back(parameters[i].name);
  require(missing.empty() || allow_missing, Status::kInvalidArgument, "gradients lacks ", list_names(missing),
          "; expected one for each trainable parameter, or allow_missing, with which these have zeros");
  return gradients;
}

}  // namespace accel::accelerator
