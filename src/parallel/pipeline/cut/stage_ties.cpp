// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/stage_ties.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "nn/module_walks.hpp"
#include "parallel/pipeline/cut/kept_parts.hpp"

namespace accel::parallel {

std::vector<StageTie> ties_between_stages(nn::Module& model, const nn::ModuleChain& chain, const StageBegins& begins) {
  std::vector<StageTie> ties;
  std::unordered_map<const at::TensorImpl*, size_t> places;
  for (const auto& [name, parameter] : nn::named_parameters(model)) {
    places.emplace(parameter.unsafeGetTensorImpl(), ties.size());
    ties.push_back({name, parameter, {}});
  }
  for (size_t stage = 0; stage < begins.size(); stage++) {
    const size_t end = stage + 1 < begins.size() ? begins[stage + 1] : chain.size();
    for (size_t part = begins[stage]; part < end; part++)
      for (const std::string& path : chain[part].modules)
        for (const auto& [name, parameter] : nn::named_parameters(*model.find(path))) {
          auto& stages = ties[places.at(parameter.unsafeGetTensorImpl())].stages;
          const auto number = static_cast<int>(stage);
          if (stages.empty() || stages.back().first != number) stages.emplace_back(number, nn::join_path(path, name));
        }
  }
  for (const auto& [path, module] : modules_of_all_stages(model, chain))
    for (const auto& [name, parameter] : module->direct_parameters()) {
      auto& stages = ties[places.at(parameter.unsafeGetTensorImpl())].stages;
      for (size_t stage = 0; stage < begins.size(); stage++) {
        const auto number = static_cast<int>(stage);
        const auto next =
            std::find_if(stages.begin(), stages.end(), [&](const auto& each) { return each.first >= number; });
        if (next == stages.end() || next->first != number) stages.emplace(next, number, nn::join_path(path, name));
      }
    }
  std::vector<StageTie> between;
  for (StageTie& tie : ties)
    if (tie.stages.size() > 1) between.push_back(std::move(tie));
  return between;
}

}  // namespace accel::parallel
