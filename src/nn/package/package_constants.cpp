// SPDX-License-Identifier: Apache-2.0
#include "nn/package/package_constants.hpp"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "nn/module_walks.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

// A place in the tree: the code of a package does not call it.
class PackagePart final : public Module {
 public:
  PackagePart() : Module("PackagePart") {}

  bool has_forward() const override { return false; }
  void check_hookable() const override {
    fail(Status::kUnsupported, "a part of a package is not called; put the hook on the whole package");
  }
};

// The module at "layers.0" of "layers.0.weight", and "weight".
std::pair<Module*, std::string> part_of(Module& root, const std::string& path) {
  Module* module = &root;
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const std::string name = path.substr(begin, dot - begin);
    Module* child = nullptr;
    for (const auto& [other, there] : module->children())
      if (other == name) child = there.get();
    if (child == nullptr) {
      const auto part = std::make_shared<PackagePart>();
      module->add_child(name, part);
      child = part.get();
    }
    module = child;
    begin = dot + 1;
  }
  return {module, path.substr(begin)};
}

// A tensor in the memory of the code, which lives as long as the tensor.
at::Tensor in_memory_of_code(const at::Tensor& tensor, const std::shared_ptr<LoadedPackage>& package) {
  return at::from_blob(
      tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), [package](void*) {}, tensor.options(),
      tensor.device());
}

uint64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint64_t>(tensor._version());
}

std::set<std::string> names_in(const Json& description, const char* key) {
  std::set<std::string> names;
  const Json* const list = json_member(description, key);
  if (list == nullptr || list->items() == nullptr) return names;
  for (const Json& item : *list->items())
    if (item.text() != nullptr) names.insert(*item.text());
  return names;
}

// torch.export has these names for tensors that the code of a model made.
bool is_made_by_code(const std::string& name) {
  return name.empty() || starts_with(name, "lifted_tensor") || starts_with(name, "_tensor_constant");
}

}  // namespace

PackageConstants::PackageConstants(std::shared_ptr<LoadedPackage> package, Module& root, const Json& description,
                                   const std::string& source)
    : package_(std::move(package)), source_(source) {
  const auto tensors = package_->runner().extract_constants_map(/*use_inactive=*/false);
  std::vector<std::pair<std::string, std::string>> names;  // paths, and names in the code
  for (const auto& [code_name, path] : package_->runner().getConstantNamesToOriginalFQNs())
    names.emplace_back(path, code_name);
  std::sort(names.begin(), names.end());
  const std::set<std::string> parameters = names_in(description, "parameters"),
                              buffers = names_in(description, "buffers");
  const bool is_described = description.members() != nullptr;
  constants_.reserve(names.size());
  for (const auto& [path, code_name] : names) {
    const auto found = tensors.find(path);
    if (found == tensors.end()) continue;  // the code computes it of others
    const at::Tensor& tensor = found->second;
    const bool is_parameter =
        tensor.is_floating_point() && (is_described ? parameters.count(path) != 0 : !is_made_by_code(path));
    const bool is_persistent = is_described ? buffers.count(path) != 0 : !is_made_by_code(path);
    add(root, code_name, path.empty() ? code_name : path, tensor, !is_parameter, is_persistent);
  }
  tie(root, description);
}

void PackageConstants::add(Module& root, const std::string& code_name, const std::string& path,
                           const at::Tensor& tensor, bool is_buffer, bool is_persistent) {
  const auto [module, name] = part_of(root, path);
  const at::Tensor own = in_memory_of_code(tensor, package_);
  Constant constant{code_name, path, module, 0, is_buffer, tensor, own, own.const_data_ptr(), version_of(own)};
  constant.index = is_buffer ? module->add_buffer(name, own, is_persistent)
                             : module->add_parameter(name, own, /*requires_grad=*/false);
  constants_.push_back(std::move(constant));
}

// Names that models have for one parameter; the code knows one of them.
void PackageConstants::tie(Module& root, const Json& description) {
  const Json* const groups = json_member(description, "tied");
  if (groups == nullptr || groups->items() == nullptr) return;
  for (const Json& group : *groups->items()) {
    if (group.items() == nullptr) continue;
    const auto known = [&](const Json& name) {
      return std::find_if(constants_.begin(), constants_.end(), [&](const Constant& constant) {
        return name.text() != nullptr && constant.path == *name.text() && !constant.is_buffer;
      });
    };
    auto source = constants_.end();
    for (const Json& name : *group.items())
      if (source == constants_.end()) source = known(name);
    if (source == constants_.end()) continue;
    for (const Json& name : *group.items()) {
      if (name.text() == nullptr || known(name) != constants_.end()) continue;
      const auto [module, own_name] = part_of(root, *name.text());
      const size_t index = module->add_parameter(own_name, source->now(), /*requires_grad=*/false);
      module->share_parameter(index, *source->owner, source->index);
    }
  }
}

void PackageConstants::refresh() {
  const std::lock_guard<std::mutex> lock(mutex_);
  torch::inductor::TensorConstantMap changed;
  for (Constant& constant : constants_) {
    const at::Tensor& now = constant.now();
    const void* const memory = now.is_meta() ? nullptr : now.const_data_ptr();
    const uint64_t version = version_of(now);
    if (memory == constant.memory && version == constant.version && memory != nullptr) continue;
    check(constant);
    constant.given = now.detach();
    constant.memory = memory;
    constant.version = version;
    changed.emplace(constant.code_name, &constant.given);
  }
  // Also where only values changed: the code computes some constants of others, once.
  if (!changed.empty())
    package_->runner().update_constant_buffer(changed, /*use_inactive=*/false, /*validate_full_updates=*/false,
                                              /*user_managed=*/true);
}

void PackageConstants::check(const Constant& constant) const {
  const at::Tensor& now = constant.now();
  const at::Tensor& original = constant.original;
  require(!now.is_meta(), Status::kInvalidState, "'", constant.path, "' of the package '", source_,
          "' has no values: it is on the device meta; load a state dict into a package that was not made there");
  require(now.device() == original.device() && now.scalar_type() == original.scalar_type() &&
              now.sizes() == original.sizes() && now.strides() == original.strides(),
          Status::kUnsupported, "'", constant.path, "' of the package '", source_, "' is ",
          tensor::dtype_name(now.scalar_type()), " ", now.sizes(), " on ", now.device(),
          ", and the code of the package takes ", tensor::dtype_name(original.scalar_type()), " ", original.sizes(),
          " on ", original.device(), "; make a package for what you want");
}

}  // namespace accel::nn
