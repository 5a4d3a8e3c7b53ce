// SPDX-License-Identifier: Apache-2.0
#include "data/batches/epoch_source.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "data/batches/chunked_reader.hpp"
#include "data/batches/dispatch_source.hpp"
#include "data/batches/iterable_source.hpp"
#include "data/batches/map_source.hpp"

namespace accel::data {
namespace {

IterableShare share_of(const LoaderInput& input, const Shard& shard) {
  IterableShare share;
  share.num_processes = shard.num_processes;
  share.process_index = shard.process_index;
  share.rows = items_of_step(input, shard) / shard.num_processes;
  share.drop_last = input.drop_last();
  return share;
}

// All items by one iterator, from the beginning.
bool is_unsplit(const EpochPosition& position) { return position.readers == std::vector<int64_t>{0}; }

}  // namespace

int64_t items_of_step(const LoaderInput& input, const Shard& shard) {
  return input.batch_size().value_or(1) * (shard.split_batches ? 1 : shard.num_processes);
}

int64_t steps_of(int64_t units, const LoaderInput& input, const Shard& shard) {
  const int64_t size = items_of_step(input, shard);
  return (units + (input.drop_last() ? 0 : size - 1)) / size;
}

int64_t units_of(const EpochBatches& batches, int64_t samples) {
  if (batches.offsets.empty()) return samples;
  const auto place = std::lower_bound(batches.offsets.begin(), batches.offsets.end(), samples);
  require(
      place != batches.offsets.end() && *place == samples, Status::kInvalidArgument, samples,
      " items were handed out, which is not the end of a batch; expected a state of a loader over the same batches");
  return place - batches.offsets.begin();
}

EpochSource open_dataset(const LoaderInput& input, const LoaderState& from, const Shard& shard) {
  EpochBatches batches = input.batch_sampler()->batches(from.epoch);
  const int64_t units = batches.count(), first = units_of(batches, from.position.samples);
  const BatchSamplerShard share({units, input.batch_size(), input.drop_last(), first}, shard);
  const bool known = !input.drop_last() && input.batch_size();
  const int64_t remainder = known ? (units - first) % items_of_step(input, shard) : -1;
  return {
      std::make_unique<MapSource>(input.data.dataset, std::move(batches), share, remainder, input.options.collation()),
      remainder};
}

EpochSource open_iterable(const LoaderInput& input, const LoaderState& from, const Shard& shard) {
  EpochPosition begin = from.position;
  if (begin.readers.empty()) begin.readers = {0};
  IterableShare share = share_of(input, shard);
  ChunkedReader::Window window;
  window.drop_last = share.drop_last;
  window.chunk_size = items_of_step(input, shard);
  window.begin = share.rows * share.process_index;
  window.end = window.begin + share.rows;
  window.done = begin.rest;
  if (is_unsplit(begin)) window.items = input.data.iterable->length();
  if (window.items && !share.drop_last)
    share.remainder = std::max<int64_t>(*window.items - begin.rest, 0) % window.chunk_size;
  ChunkedReader reader(open_readers(input.data.iterable, from.epoch, begin), window);
  return {std::make_unique<IterableSource>(std::move(reader), share, begin, input.options.collation()),
          share.remainder};
}

EpochSource open_iterable_shards(const LoaderInput& input, const LoaderState& from, const Shard& shard,
                                 const CommunicatingRanks& ranks) {
  EpochPosition begin = from.position;
  begin.readers.resize(static_cast<size_t>(shard.num_processes));
  const IterableShare share = share_of(input, shard);
  ChunkedReader::Window window;
  window.drop_last = share.drop_last;
  window.chunk_size = window.end = share.rows;
  window.done = begin.readers[static_cast<size_t>(shard.process_index)];
  auto open = [iterable = input.data.iterable, epoch = from.epoch, rank = shard.process_index,
               readers = shard.num_processes] { return iterable->read(epoch, rank, readers); };
  return {std::make_unique<ShardedIterableSource>(ChunkedReader(std::move(open), window), share, begin,
                                                  input.options.collation(), ranks.communicator, ranks.process_indices),
          share.remainder};
}

EpochSource open_dispatched(const LoaderInput& input, const LoaderState& from, const Shard& shard,
                            const CommunicatingRanks& ranks) {
  EpochPosition begin = from.position;
  DispatchShare share;
  share.size = items_of_step(input, shard);
  share.drop_last = input.drop_last();
  share.slice = input.options.slice;
  ChunkedReader::Window window;
  window.chunk_size = window.end = share.size;
  window.drop_last = share.drop_last;
  ChunkedReader::Open open;
  DispatchSource::Make make;
  std::optional<int64_t> units;
  if (input.data.iterable != nullptr) {
    if (begin.readers.empty()) begin.readers = {0};
    window.done = begin.rest;
    open = open_readers(input.data.iterable, from.epoch, begin);
    make = [collation = input.options.collation()](std::vector<c10::IValue> items) {
      return collate(collation, std::move(items));
    };
    if (is_unsplit(begin)) units = input.data.iterable->length();
  } else {
    const EpochBatches batches = input.batch_sampler()->batches(from.epoch);
    units = batches.count();
    window.done = units_of(batches, begin.samples);
    share.items_are_batches = !input.batch_size();
    open = [batches] { return read_indices(batches); };
    make = [dataset = input.data.dataset,
            collation = input.options.collation()](const std::vector<c10::IValue>& items) {
      std::vector<int64_t> indices;
      for (const auto& item : items) {
        if (item.isInt()) {
          indices.push_back(item.toInt());
          continue;
        }
        const at::Tensor& batch = item.toTensor();
        const auto* const first = batch.const_data_ptr<int64_t>();
        indices.insert(indices.end(), first, first + batch.numel());
      }
      return dataset->batch(indices, collation);
    };
  }
  if (units && input.batch_size() && !share.drop_last)
    share.remainder = std::max<int64_t>(*units - window.done, 0) % share.size;
  ChunkedReader reader(std::move(open), window);
  return {std::make_unique<DispatchSource>(std::move(reader), share, std::move(begin), std::move(make),
                                           ranks.communicator, ranks.process_indices),
          share.remainder};
}

}  // namespace accel::data
