// SPDX-License-Identifier: Apache-2.0
// Translates DeepSpeed's settings and its JSON: sharding by ZeRO's stages, accumulation, clipping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/deepspeed.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"

namespace accel {

// The values that replace "auto", and that the settings are checked against.
struct DeepspeedJob {
  Precision mixed_precision = Precision::kNo;
  int64_t gradient_accumulation_steps = 1;
  int64_t data_parallel_size = 1;
  std::vector<int64_t> batch_sizes;  // of the loaders, on one rank
};

// How losses are scaled in float16, with the defaults of DeepSpeed.
struct DeepspeedLossScale {
  double loss_scale = 0;  // above 0: it is constant
  int64_t initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

struct DeepspeedConfig {
  FsdpSettings fsdp;  // checked
  int64_t zero_stage = 0;
  int64_t gradient_accumulation_steps = 1;
  double gradient_clipping = 0;  // the largest norm at each step of the optimizer; 0: any
  std::optional<int64_t> train_micro_batch_size_per_gpu, train_batch_size;  // nothing: neither file nor loader says it
  // Stages 2 and 3: no rank has whole gradients, also while they accumulate, so that each micro-batch exchanges them.
  bool shards_gradients = false;
  std::optional<DeepspeedLossScale> loss_scale;  // nothing: the file has no section fp16 that is on
  std::vector<std::string> without_effect;       // "key: why"
};

// Settings that the call leaves unset, from the environment and the configuration file.
DeepspeedSettings resolve_deepspeed_settings(DeepspeedSettings given);

// Reads the JSON of resolved settings, if there is one. Settings that say otherwise than it are one error.
DeepspeedConfig read_deepspeed_config(const DeepspeedSettings& settings, const DeepspeedJob& job);

}  // namespace accel
