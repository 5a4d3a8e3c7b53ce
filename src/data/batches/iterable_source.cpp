// SPDX-License-Identifier: Apache-2.0
#include "data/batches/iterable_source.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"

namespace accel::data {
namespace {

class ChainedIterators final : public DatasetIterator {
 public:
  ChainedIterators(std::shared_ptr<const IterableDataset> stream, int64_t epoch, std::vector<int64_t> taken)
      : stream_(std::move(stream)), epoch_(epoch), taken_(std::move(taken)) {}

  std::optional<c10::IValue> next() override {
    for (; current_ < taken_.size(); ++current_, reader_.reset()) {
      open();
      if (auto item = reader_->next()) return item;
    }
    return std::nullopt;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    for (; current_ < taken_.size(); ++current_, reader_.reset()) {
      open();
      skipped += reader_->skip(count - skipped);
      if (skipped == count) break;
    }
    return skipped;
  }

 private:
  void open() {
    if (reader_ != nullptr) return;
    auto reader = stream_->read(epoch_, static_cast<int64_t>(current_), static_cast<int64_t>(taken_.size()));
    if (taken_[current_] > 0) reader->skip(taken_[current_]);
    reader_ = std::move(reader);
  }

  std::shared_ptr<const IterableDataset> stream_;
  int64_t epoch_;
  std::vector<int64_t> taken_;
  size_t current_ = 0;
  std::unique_ptr<DatasetIterator> reader_;
};

}  // namespace

ChunkedReader::Open open_readers(std::shared_ptr<const IterableDataset> stream, int64_t epoch,
                                 const EpochPosition& position) {
  return [stream = std::move(stream), epoch, readers = position.readers] {
    return std::make_unique<ChainedIterators>(stream, epoch, readers);
  };
}

IterableSource::IterableSource(ChunkedReader chunks, const IterableShare& share, EpochPosition begin,
                               Collation collation)
    : chunks_(std::move(chunks)), share_(share), end_(std::move(begin)), collation_(std::move(collation)) {}

std::optional<Batch> IterableSource::read(int64_t) {
  const ChunkedReader::Chunk* chunk = chunks_.current();
  if (chunk == nullptr) return std::nullopt;
  const int64_t count = chunk->count, rows = share_.rows;
  const bool whole = count == rows * share_.num_processes;
  auto items = chunk->items;
  if (!whole && share_.num_processes > 1) {
    const auto& first = chunks_.first();
    const int64_t offset = rows * share_.process_index;
    for (auto place = static_cast<int64_t>(items.size()); place < rows; ++place)
      items.push_back(first[static_cast<size_t>(offset + place - count) % first.size()]);
  }
  Batch batch;
  batch.progress.rows = static_cast<int64_t>(items.size());
  batch.value = collate(collation_, std::move(items));
  batch.progress.end_of_dataloader = chunks_.next_count() == 0;
  batch.progress.remainder = share_.remainder;
  if (!whole) {
    batch.progress.remainder = count;
    for (int64_t rank = 0; rank < share_.num_processes; ++rank)
      batch.progress.ranks.push_back(
          {share_.num_processes == 1 ? count : rows, std::clamp<int64_t>(count - rank * rows, 0, rows)});
  } else if (batch.progress.end_of_dataloader && !share_.drop_last) {
    batch.progress.remainder = 0;
  }
  end_.samples += count;
  end_.rest += count;
  batch.end = end_;
  chunks_.advance();
  return batch;
}

ShardedIterableSource::ShardedIterableSource(ChunkedReader chunks, const IterableShare& share, EpochPosition begin,
                                             Collation collation, std::shared_ptr<comm::Communicator> communicator,
                                             const std::vector<int64_t>& process_indices)
    : chunks_(std::move(chunks)),
      share_(share),
      end_(std::move(begin)),
      collation_(std::move(collation)),
      communicator_(std::move(communicator)),
      ranks_(static_cast<size_t>(share.num_processes)) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  for (size_t rank = process_indices.size(); rank-- > 0;)
    ranks_[static_cast<size_t>(process_indices[rank])] = static_cast<int64_t>(rank);
}

// At the end of this rank's shards it continues with repetitions.
std::optional<Batch> ShardedIterableSource::read(int64_t) {
  Batch batch;
  const ChunkedReader::Chunk* chunk = chunks_.current();
  if (chunk == nullptr && share_.drop_last) return batch;
  std::vector<c10::IValue> items;
  if (chunk != nullptr) {
    items = chunk->items;
    batch.count = chunk->count;
    batch.more = chunks_.next_count() > 0;
  }
  const auto& first = chunks_.first();
  if (items.empty() && first.empty()) return batch;
  for (auto place = static_cast<int64_t>(items.size()); place < share_.rows; ++place)
    items.push_back(first[static_cast<size_t>(place - batch.count) % first.size()]);
  batch.value = collate(collation_, std::move(items));
  if (chunk != nullptr) chunks_.advance();
  return batch;
}

std::optional<Batch> ShardedIterableSource::deliver(const Take& take) {
  std::exception_ptr failure;
  if (!held_) try {
      held_ = take();
    } catch (...) {
      failure = std::current_exception();
    }
  enum { kFailed, kObserved, kMore, kEmpty, kNumbers };
  at::Tensor own = at::zeros({kNumbers}, at::kLong);
  auto* const numbers = own.mutable_data_ptr<int64_t>();
  numbers[kFailed] = failure != nullptr;
  if (held_) {
    numbers[kObserved] = held_->count;
    numbers[kMore] = held_->more;
    numbers[kEmpty] = held_->value.isNone();
  }
  const at::Tensor all = comm::gather_rows(*communicator_, own);
  if (failure != nullptr) std::rethrow_exception(failure);
  const auto* const rows = all.const_data_ptr<int64_t>();
  const auto of_rank = [&](int64_t rank, int number) { return rows[rank * kNumbers + number]; };
  const auto of = [&](int64_t index, int number) { return of_rank(ranks_[static_cast<size_t>(index)], number); };
  int64_t with_items = 0, with_more = 0;
  for (int64_t rank = 0; rank < communicator_->size(); ++rank)
    require(of_rank(rank, kFailed) == 0, Status::kCancelled, "rank ", rank,
            " could not read its batch; see its error there");
  for (int64_t rank = 0; rank < share_.num_processes; ++rank) {
    with_items += of(rank, kObserved) > 0;
    with_more += of(rank, kMore);
  }
  if (share_.drop_last ? with_items < share_.num_processes : with_items == 0) {
    held_.reset();
    return std::nullopt;
  }
  for (int64_t rank = 0; rank < share_.num_processes; ++rank)
    require(of(rank, kEmpty) == 0, Status::kInvalidState, "rank ", rank,
            " has no item in its shards of the stream, and others have; expected shards with items, or a loader with "
            "dispatch_batches");
  Batch batch = std::move(*held_);
  held_.reset();
  batch.progress.rows = share_.rows;
  batch.progress.end_of_dataloader = share_.drop_last ? with_more < share_.num_processes : with_more == 0;
  int64_t count = 0;
  for (int64_t rank = 0; rank < share_.num_processes; ++rank) {
    batch.progress.ranks.push_back({share_.rows, of(rank, kObserved)});
    count += of(rank, kObserved);
    end_.readers[rank] += of(rank, kObserved);
  }
  const bool whole = count == share_.rows * share_.num_processes;
  if (whole) batch.progress.ranks.clear();
  if (batch.progress.end_of_dataloader && !share_.drop_last) batch.progress.remainder = whole ? 0 : count;
  end_.samples += count;
  batch.end = end_;
  return batch;
}

}  // namespace accel::data
