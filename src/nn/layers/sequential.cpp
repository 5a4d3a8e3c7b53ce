#include "nn/layers/sequential.hpp"

#include "base/error.hpp"

namespace accel::nn {

Sequential::Sequential(const std::vector<ModulePtr>& modules) : Module("Sequential") {
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

}  // namespace accel::nn
