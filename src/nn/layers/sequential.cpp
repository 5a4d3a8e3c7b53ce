// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/sequential.hpp"

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {

Sequential::Sequential(const std::vector<ModulePtr>& modules, std::string kind) : Module(std::move(kind)) {
  for (const ModulePtr& module : modules) add_child(std::to_string(children().size()), module);
}

c10::IValue Sequential::forward(const Inputs& inputs) {
  if (children().empty()) return only_tensor(inputs);
  Inputs current = inputs;
  for (const auto& [name, module] : children()) {
    if (!computes(*module)) continue;
    const c10::IValue output = module->call(current);
    current.assign(1, output);
  }
  return std::move(current.front());
}

bool Sequential::computes(const Module& child) const { return kind() != kProgramChain || child.has_forward(); }

ModuleChain Sequential::chain() {
  ModuleChain chain;
  append_parts("", chain);
  return chain;
}

void Sequential::append_parts(const std::string& path, ModuleChain& chain) const {
  const auto is_of_program = [](const Module& module) { return module.kind() == kProgramChain; };
  for (const auto& [name, module] : children()) {
    const std::string whole = join_path(path, name);
    const auto* const inner = dynamic_cast<const Sequential*>(module.get());
    if (!computes(*module)) continue;
    if (is_of_program(*this) && inner != nullptr && is_of_program(*inner)) {
      inner->append_parts(whole, chain);
      continue;
    }
    chain.push_back({whole, {whole}, [module = module, is_first = chain.empty()](const c10::IValue& input) {
                       return module->call(is_first ? tree::sequence_items(input).vec() : Inputs{input});
                     }});
  }
}

}  // namespace accel::nn
