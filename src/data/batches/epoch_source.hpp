// SPDX-License-Identifier: Apache-2.0
// Opens the batches of an epoch, for one rank's share of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "data/batches/batch_sampler_shard.hpp"
#include "data/batches/batch_source.hpp"
#include "data/loader_input.hpp"
#include "data/loader_state.hpp"

namespace accel::data {

struct EpochSource {
  std::unique_ptr<BatchSource> batches;
  int64_t remainder = -1;  // rows of the last global batch that are not repetitions; 0: all; -1: unknown
};

// Items, or batches of any size, that all ranks together read in one step.
int64_t items_of_step(const LoaderInput& input, const Shard& shard);

// Steps over so many items, or batches of any size.
int64_t steps_of(int64_t units, const LoaderInput& input, const Shard& shard);

// How many whole units, which are items, or batches where they have any size, the first `samples` items are.
int64_t units_of(const EpochBatches& batches, int64_t samples);

// All of these begin at the position of `from`.

EpochSource open_dataset(const LoaderInput& input, const LoaderState& from, const Shard& shard);

// Every rank iterates over all items and keeps its own.
EpochSource open_iterable(const LoaderInput& input, const LoaderState& from, const Shard& shard);

// The communicator's ranks, and the process_index of each; none: each rank has its own.
struct CommunicatingRanks {
  std::shared_ptr<comm::Communicator> communicator;
  std::vector<int64_t> process_indices;
};

// Each rank iterates over shards of its own.
EpochSource open_iterable_shards(const LoaderInput& input, const LoaderState& from, const Shard& shard,
                                 const CommunicatingRanks& ranks);

// Rank 0 reads for all ranks.
EpochSource open_dispatched(const LoaderInput& input, const LoaderState& from, const Shard& shard,
                            const CommunicatingRanks& ranks);

}  // namespace accel::data
