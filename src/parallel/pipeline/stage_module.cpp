#include "parallel/pipeline/stage_module.hpp"

#include <utility>

namespace accel::parallel {

StageModule::StageModule(const nn::Module& model, nn::ModuleChain chain, StageBegins begins)
    : Module(model.kind()), chain_(std::move(chain)), begins_(std::move(begins)) {
  for (const auto& [name, child] : model.children()) add_child(name, child);
}

c10::IValue StageModule::forward(const nn::Inputs& inputs) {
  const auto stage = static_cast<size_t>(inputs[0].toInt());
  const size_t end = stage + 1 < begins_.size() ? begins_[stage + 1] : chain_.size();
  c10::IValue value = inputs[1];
  for (size_t part = begins_[stage]; part < end; part++) value = chain_[part].call(value);
  return value;
}

}  // namespace accel::parallel
