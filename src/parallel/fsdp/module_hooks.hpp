// SPDX-License-Identifier: Apache-2.0
// Module hooks: hooks of one owner on several modules, which are removed with it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/module.hpp"

namespace accel::parallel {

class ModuleHooks {
 public:
  ModuleHooks() = default;
  ~ModuleHooks() {
    for (const auto& [module, hook] : hooks_) module->hooks().remove_hook(hook);
  }
  ModuleHooks(const ModuleHooks&) = delete;
  ModuleHooks& operator=(const ModuleHooks&) = delete;

  // `hook` is the number that the module gave.
  void add(nn::ModulePtr module, int64_t hook) { hooks_.emplace_back(std::move(module), hook); }

 private:
  std::vector<std::pair<nn::ModulePtr, int64_t>> hooks_;
};

}  // namespace accel::parallel
