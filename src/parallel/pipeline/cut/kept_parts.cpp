// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/kept_parts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tensor/set_data.hpp"

namespace accel::parallel {
namespace {

void find_beside_parts(const nn::Module& module, const std::string& path, const std::unordered_set<std::string>& parts,
                       nn::NamedModules& found) {
  if (parts.count(path) > 0) return;
  found.emplace_back(path, &module);
  for (const auto& [name, child] : module.children())
    find_beside_parts(*child, nn::join_path(path, name), parts, found);
}

struct Kept {
  std::unordered_set<std::string> paths;
  std::unordered_set<const nn::Module*> modules;
  std::unordered_set<const at::TensorImpl*> tensors;
};

Kept kept_of(nn::Module& model, const nn::ModuleChain& chain, const std::set<size_t>& parts) {
  Kept kept;
  for (const auto& [path, module] : modules_of_all_stages(model, chain)) {
    kept.modules.insert(module);
    for (const auto& member : nn::members_of(*module)) kept.tensors.insert(member.tensor.unsafeGetTensorImpl());
  }
  for (const size_t part : parts)
    for (const std::string& path : chain[part].modules) {
      kept.paths.insert(path);
      for (const auto& [name, module] : nn::named_modules(*model.find(path))) {
        kept.modules.insert(module);
        for (const auto& member : nn::members_of(*module)) kept.tensors.insert(member.tensor.unsafeGetTensorImpl());
      }
    }
  return kept;
}

void release(const at::Tensor& tensor) {
  if (tensor.is_meta()) return;
  tensor.mutable_grad().reset();
  tensor::set_data(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)));
}

void refuse_calls(nn::Module& module, const std::string& path) {
  module.hooks().add_pre_hook(
      [path](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
        fail(Status::kInvalidState, "'", path,
             "' is in a stage of the pipeline that another rank has; call the prepared model");
      },
      nn::HookOrder::kPlacement);
}

// Releases what a module and those below it have, but for the retained parts.
void release_modules(nn::Module& root, const std::string& path, const Kept& kept) {
  for (const auto& [name, module] : nn::named_modules(root)) {
    if (kept.modules.count(module) > 0) continue;
    for (const auto& member : nn::members_of(*module))
      if (kept.tensors.count(member.tensor.unsafeGetTensorImpl()) == 0) release(member.tensor);
  }
  if (kept.modules.count(&root) == 0) refuse_calls(root, path);
}

std::pair<std::string, std::string> parent_and_name(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

nn::NamedModules modules_of_all_stages(const nn::Module& model, const nn::ModuleChain& chain) {
  std::unordered_set<std::string> parts;
  for (const nn::ModulePart& part : chain) parts.insert(part.modules.begin(), part.modules.end());
  nn::NamedModules found;
  find_beside_parts(model, "", parts, found);
  return found;
}

void keep_parts(nn::Module& model, const nn::ModuleChain& chain, const std::set<size_t>& parts) {
  const at::NoGradGuard no_grad;
  const Kept kept = kept_of(model, chain, parts);
  std::unordered_set<std::string> released;
  for (const nn::ModulePart& part : chain)
    for (const std::string& path : part.modules) {
      if (kept.paths.count(path) > 0 || !released.insert(path).second) continue;
      release_modules(*model.find(path), path, kept);
      const auto [parent, name] = parent_and_name(path);
      model.find(parent)->remove(name, /*is_elsewhere=*/true);
    }
}

}  // namespace accel::parallel
