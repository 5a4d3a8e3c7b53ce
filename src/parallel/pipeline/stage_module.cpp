// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/stage_module.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "nn/module_walks.hpp"

namespace accel::parallel {
namespace {

bool has_parts(const nn::ModuleChain& chain, const std::string& path) {
  const std::string folder = path + ".";
  return std::any_of(chain.begin(), chain.end(), [&](const nn::ModulePart& part) {
    return std::any_of(part.modules.begin(), part.modules.end(),
                       [&](const std::string& owned) { return owned.compare(0, folder.size(), folder) == 0; });
  });
}

// A chain calls its parts and no module above them. What wraps modules that are called shall see lists there.
void add_children(nn::Module& to, const nn::Module& from, const std::string& path, const nn::ModuleChain& chain) {
  for (const auto& [name, child] : from.children()) {
    const std::string whole = nn::join_path(path, name);
    if (!has_parts(chain, whole) || !nn::members_of(*child).empty()) {
      to.add_child(name, child);
      continue;
    }
    const auto list = std::make_shared<nn::Module>("ModuleList");
    add_children(*list, *child, whole, chain);
    to.add_child(name, list);
  }
}

}  // namespace

StageModule::StageModule(const nn::Module& model, nn::ModuleChain chain, StageBegins begins)
    : Module(model.kind()), chain_(std::move(chain)), begins_(std::move(begins)) {
  add_children(*this, model, "", chain_);
}

c10::IValue StageModule::forward(const nn::Inputs& inputs) {
  const auto stage = static_cast<size_t>(inputs[0].toInt());
  const size_t end = stage + 1 < begins_.size() ? begins_[stage + 1] : chain_.size();
  c10::IValue value = inputs[1];
  for (size_t part = begins_[stage]; part < end; part++) value = chain_[part].call(value);
  return value;
}

}  // namespace accel::parallel
