// SPDX-License-Identifier: Apache-2.0
// How a model is shared out: as the settings of sharding say, or those of DeepSpeed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/deepspeed_config.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

// The values that the settings are resolved against.
struct ShardingJob {
  Precision mixed_precision = Precision::kNo;
  state::AccumulationSettings accumulation;
  int64_t data_parallel_size = 1;
  bool has_shards = false;           // the mesh has an axis of shards
  bool has_stages = false;           // the model will be cut into stages
  bool reports_keys = false;         // a warning names DeepSpeed's keys without effect
  std::vector<int64_t> batch_sizes;  // of the loaders, on one rank
};

struct ShardingChoice {
  FsdpSettings settings;         // complete
  double gradient_clipping = 0;  // at each step; 0: none
  std::optional<DeepspeedLossScale> loss_scale;
  state::AccumulationSettings accumulation;
  std::string deepspeed;  // what its settings are, if they say how the model is shared out
};

ShardingChoice choose_sharding(const PrepareModelSettings& preparation, const ShardingJob& job);

}  // namespace accel::accelerator
