// SPDX-License-Identifier: Apache-2.0
#include "data/rank_share.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace accel::data {

// One process gets the batches as they are: nothing has to be evened out.
Shard RankShare::shard() const {
  if (options_.num_processes == 1) return {};
  return {options_.num_processes, options_.process_index, options_.splits_batches(), options_.even_batches};
}

bool RankShare::has_shard_for_each_rank(const LoaderInput& input) const {
  const auto& iterable = input.data.iterable;
  return iterable != nullptr && options_.num_processes > 1 && !options_.dispatch_batches &&
         iterable->num_shards() >= options_.num_processes;
}

bool RankShare::reads_own_shards(const LoaderInput& input) const {
  return has_shard_for_each_rank(input) && !options_.splits_batches() && options_.communicator != nullptr;
}

std::optional<int64_t> RankShare::length(const LoaderInput& input, int64_t epoch) const {
  if (has_shard_for_each_rank(input)) return std::nullopt;
  if (!options_.dispatch_batches || input.data.dataset == nullptr) return BatchShare::length(input, epoch);
  return steps_of(input.batch_sampler()->count(epoch), input, shard());
}

EpochPosition RankShare::position_after(int64_t units, const LoaderInput& input, int64_t epoch) const {
  if (!reads_own_shards(input)) return BatchShare::position_after(units, input, epoch);
  EpochPosition position;
  position.samples = units;
  position.readers.assign(static_cast<size_t>(options_.num_processes), units / options_.num_processes);
  return position;
}

// Rank 0's seed is used by all: with different orders ranks would lose items and repeat others.
int64_t RankShare::draw_seed(const LoaderInput& input) const {
  at::Tensor seed = at::empty({1}, at::kLong);
  if (!options_.use_seedable_sampler)
    seed.random_();
  else
    seed.fill_(BatchShare::draw_seed(input));
  if (options_.communicator != nullptr && options_.communicator->size() > 1) {
    seed = seed.to(options_.communicator->device());
    options_.communicator->broadcast(seed, 0);
  }
  return seed.item<int64_t>();
}

EpochSource RankShare::open(const LoaderInput& input, const LoaderState& from) const {
  const CommunicatingRanks ranks{options_.communicator, options_.process_indices};
  if (options_.dispatch_batches) return open_dispatched(input, from, shard(), ranks);
  const EpochPosition& begin = from.position;
  const bool fits = begin.rest == 0 &&
                    (begin.readers.empty() || static_cast<int64_t>(begin.readers.size()) == options_.num_processes);
  if (fits && reads_own_shards(input)) return open_iterable_shards(input, from, shard(), ranks);
  return BatchShare::open(input, from);
}

bool RankShare::calls_back(const LoaderInput& input) const {
  return BatchShare::calls_back(input) || (options_.dispatch_batches && input.options.slice);
}

}  // namespace accel::data
