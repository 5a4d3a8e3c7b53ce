#include "nn/layers/sequential.hpp"

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#include "tensor/tree.hpp"

namespace accel::nn {

Sequential::Sequential(const std::vector<ModulePtr>& modules, std::string kind) : Module(std::move(kind)) {
  for (const ModulePtr& module : modules) add_child(std::to_string(children().size()), module);
}

c10::IValue Sequential::forward(const Inputs& inputs) {
  if (children().empty()) return only_tensor(inputs);
  Inputs current = inputs;
  for (const auto& [name, module] : children()) {
    const c10::IValue output = module->call(current);
    current.assign(1, output);
  }
  return std::move(current.front());
}

ModuleChain Sequential::chain() {
  ModuleChain chain;
  for (const auto& [name, module] : children())
    chain.push_back({name, {name}, [module = module, is_first = chain.empty()](const c10::IValue& input) {
                       return module->call(is_first ? tree::sequence_items(input).vec() : Inputs{input});
                     }});
  return chain;
}

}  // namespace accel::nn
