// SPDX-License-Identifier: Apache-2.0
#include "nn/module.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <unordered_set>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

template <typename Visit>
void visit_modules(const Module& root, std::unordered_set<const Module*>& seen, const Visit& visit) {
  if (!seen.insert(&root).second) return;
  visit(root);
  for (const auto& [name, child] : root.children()) visit_modules(*child, seen, visit);
}

}  // namespace

struct Module::ParameterList {
  uint64_t version;
  std::vector<at::Tensor> parameters;
};

const at::Tensor& Module::only_tensor(const Inputs& inputs) const {
  require(inputs.size() == 1, Status::kInvalidArgument, "a module of kind '", kind(), "' was called with ",
          inputs.size(), " inputs; expected one tensor");
  if (!inputs[0].isTensor() || !inputs[0].toTensor().defined())
    fail(Status::kTypeMismatch, "a module of kind '", kind(), "' was called with a ", tree::kind_name(inputs[0]),
         "; expected a tensor");
  const at::Tensor& input = inputs[0].toTensor();
  require(direct_parameters().empty() || parameter(0).device() == input.device(), Status::kInvalidArgument,
          "a module of kind '", kind(), "' with parameters on ",
          direct_parameters().empty() ? input.device() : parameter(0).device(), " was called with a tensor on ",
          input.device(), "; expected the same device: move one of them");
  return input;
}

std::vector<at::Tensor> Module::parameters() const {
  const uint64_t version = structure_version();
  if (const auto kept = std::atomic_load(&parameter_list_); kept != nullptr && kept->version == version)
    return kept->parameters;
  std::vector<at::Tensor> found;
  std::unordered_set<const at::TensorImpl*> tensors;
  std::unordered_set<const Module*> modules;
  visit_modules(*this, modules, [&](const Module& module) {
    for (const auto& [name, tensor] : module.direct_parameters())
      if (tensors.insert(tensor.unsafeGetTensorImpl()).second) found.push_back(tensor);
  });
  std::atomic_store(&parameter_list_, std::make_shared<const ParameterList>(ParameterList{version, found}));
  return found;
}

bool Module::is_within(const Module& other) const {
  bool found = false;
  std::unordered_set<const Module*> seen;
  visit_modules(other, seen, [&](const Module& module) { found = found || &module == this; });
  return found;
}

}  // namespace accel::nn
