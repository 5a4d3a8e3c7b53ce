// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/schedules/alternation.hpp"

#include <algorithm>

namespace accel::parallel {

PipelineActions alternate(size_t warm_up, const PipelineActions& forwards, const PipelineActions& backwards) {
  PipelineActions actions(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up));
  auto backward = backwards.begin();
  for (size_t forward = warm_up; forward < forwards.size(); forward++) {
    actions.push_back(forwards[forward]);
    actions.push_back(*backward++);
  }
  actions.insert(actions.end(), backward, backwards.end());
  return actions;
}

PipelineActions each_micro_batch(PipelineAction::Kind kind, int stage, int micro_batches) {
  PipelineActions actions;
  for (int micro_batch = 0; micro_batch < micro_batches; micro_batch++) actions.push_back({kind, stage, micro_batch});
  return actions;
}

size_t warm_up_of(int rank, int ranks, int micro_batches, int max_in_flight) {
  const int behind = std::min(micro_batches, ranks - 1 - rank);
  return static_cast<size_t>(max_in_flight > 0 ? std::min(behind, max_in_flight - 1) : behind);
}

}  // namespace accel::parallel
