// SPDX-License-Identifier: Apache-2.0
#include "nn/module_chain.hpp"

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>

namespace accel::nn {

ModuleChain chain_with_head(ModuleChain chain, const std::string& base, const std::string& head,
                            std::function<c10::IValue(const c10::IValue& output)> call_head) {
  for (ModulePart& part : chain)
    for (std::string& path : part.modules) path = base + "." + path;
  ModulePart& last = chain.back();
  last.modules.push_back(head);
  last.call = [call = std::move(last.call), call_head = std::move(call_head)](const c10::IValue& input) {
    return call_head(call(input));
  };
  return chain;
}

}  // namespace accel::nn
