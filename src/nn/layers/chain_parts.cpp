// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/chain_parts.hpp"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

class ChainPart final : public Module {
 public:
  ChainPart(ModulePtr model, ModulePart part, bool is_first)
      : Module("ChainPart"), model_(std::move(model)), part_(std::move(part)), is_first_(is_first) {
    for (const std::string& path : part_.modules) add_below(*this, path, model_->find(path));
  }
  std::vector<std::string> input_names() const override {
    return is_first_ ? model_->input_names() : Module::input_names();
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    if (is_first_) return part_.call(tree::new_tuple(inputs));
    require(inputs.size() == 1, Status::kInvalidArgument, "a part of a chain was called with ", inputs.size(),
            " inputs; expected one, the output of the part before it");
    return part_.call(inputs[0]);
  }

 private:
  static void add_below(Module& owner, const std::string& path, ModulePtr module) {
    const size_t dot = path.find('.');
    if (dot == std::string::npos) return owner.add_child(path, std::move(module));
    const std::string name = path.substr(0, dot);
    const auto& children = owner.children();
    const auto found =
        std::find_if(children.begin(), children.end(), [&](const auto& child) { return child.first == name; });
    ModulePtr list = found != children.end() ? found->second : nullptr;
    if (list == nullptr) owner.add_child(name, list = std::make_shared<Module>("ModuleList"));
    add_below(*list, path.substr(dot + 1), std::move(module));
  }

  const ModulePtr model_;
  const ModulePart part_;
  const bool is_first_;
};

}  // namespace

std::vector<ModulePtr> parts_of_chain(const ModulePtr& model) {
  std::vector<ModulePtr> parts;
  for (ModulePart& part : model->chain())
    parts.push_back(std::make_shared<ChainPart>(model, std::move(part), parts.empty()));
  return parts;
}

}  // namespace accel::nn
