// SPDX-License-Identifier: Apache-2.0
// State dicts of modules.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "nn/module_walks.hpp"
#include "nn/weight_store.hpp"
#include "tensor/dtype.hpp"
#include "tensor/loading.hpp"

namespace accel::nn {
namespace {

// With repeated shared modules and tied tensors.
void collect_state(const Module& module, const std::string& prefix, bool all_buffers, NamedTensors& entries) {
  for (const auto& [name, tensor] : module.direct_parameters()) entries.emplace_back(prefix + name, tensor);
  for (const Module::Buffer& buffer : module.direct_buffers())
    if (buffer.persistent || all_buffers) entries.emplace_back(prefix + buffer.name, buffer.tensor);
  for (const auto& [name, child] : module.children()) collect_state(*child, prefix + name + ".", all_buffers, entries);
}

}  // namespace

NamedTensors named_members(const Module& root) {
  NamedTensors entries;
  collect_state(root, "", /*all_buffers=*/true, entries);
  return entries;
}

NamedTensors Module::state_dict() const {
  NamedTensors entries;
  collect_state(*this, "", /*all_buffers=*/false, entries);
  for (auto& [name, tensor] : entries) tensor = stored_values(weight_store(), tensor).detach();
  return entries;
}

LoadReport Module::load_state_dict(const NamedTensors& entries, bool strict) {
  std::unordered_map<std::string_view, const at::Tensor*> given;
  for (const auto& [name, tensor] : entries) {
    require(tensor.defined(), Status::kTypeMismatch, "state dict entry '", name, "' is not a tensor; expected one");
    require(given.emplace(name, &tensor).second, Status::kInvalidArgument, "state dict entry '", name,
            "' is there twice; expected each name once");
  }

  NamedTensors own;
  collect_state(*this, "", /*all_buffers=*/false, own);
  LoadReport report;
  std::vector<std::string> misfits;
  tensor::LoadedCopies copies;
  std::unordered_set<const at::TensorImpl*> filled;  // under any of their names
  std::unordered_set<std::string_view> known;
  for (const auto& [name, tensor] : own) {
    known.insert(name);
    const auto entry = given.find(name);
    if (entry == given.end()) continue;
    const at::Tensor& source = *entry->second;
    if (source.sizes() != tensor.sizes()) {
      misfits.push_back(text(name, " ", source.sizes(), " instead of ", tensor.sizes()));
      continue;
    }
    require(!source.is_meta() && !tensor.is_meta(), Status::kInvalidState, "'", name, "' is a meta tensor in the ",
            source.is_meta() ? "state dict" : "module", "; expected one with data");
    require(tensor.is_complex() || !source.is_complex(), Status::kTypeMismatch, "state dict entry '", name,
            "' is of dtype ", tensor::dtype_name(source.scalar_type()), "; expected what converts to ",
            tensor::dtype_name(tensor.scalar_type()));
    copies.emplace_back(tensor, source);
    filled.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : own)
    if (given.count(name) == 0 && filled.count(tensor.unsafeGetTensorImpl()) == 0) report.missing.push_back(name);
  for (const auto& [name, tensor] : entries)
    if (known.count(name) == 0) report.unexpected.push_back(name);

  require(misfits.empty(), Status::kShapeMismatch, "state dict entries of another shape: ", list_names(misfits),
          "; expected the shapes of the module");
  if (strict && !(report.missing.empty() && report.unexpected.empty())) {
    std::string reason = "state dict does not fit the module:";
    if (!report.missing.empty()) reason += " missing " + list_names(report.missing);
    if (!report.unexpected.empty())
      reason += text(report.missing.empty() ? "" : ";", " unexpected ", list_names(report.unexpected));
    fail(Status::kNotFound, reason, "; load it without strict to allow that");
  }

  const at::NoGradGuard no_grad;
  tensor::copy_loaded(copies);
  return report;
}

}  // namespace accel::nn
