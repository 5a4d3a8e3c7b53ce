// SPDX-License-Identifier: Apache-2.0
// Split region: what the layers of a model that are split over ranks share.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "parallel/regions/exchange.hpp"
#include "parallel/regions/exchange_memory.hpp"

namespace accel::parallel {

struct SplitRegionOptions {
  bool sequence_parallel = false;  // between split layers a rank has its positions of the sequence alone
  bool regather_inputs = true;     // the backward gathers what column layers have read, which is not saved
  bool overlap = false;            // exchanges go on while something else is computed
  int64_t overlap_chunks = 0;      // of a product whose rows are exchanged one after the other; 0: by their size
};

struct SplitRegion : SplitRegionOptions {
  SplitRegion(RankGroup ranks, const SplitRegionOptions& options)
      : SplitRegionOptions(options), group(std::move(ranks)), memory(std::make_shared<ExchangeMemory>(group)) {}

  bool regathers() const { return sequence_parallel && regather_inputs; }
  comm::RunsOn runs_on() const { return overlap ? comm::RunsOn::kBackground : comm::RunsOn::kCaller; }

  RankGroup group;
  std::shared_ptr<ExchangeMemory> memory;
};

}  // namespace accel::parallel
