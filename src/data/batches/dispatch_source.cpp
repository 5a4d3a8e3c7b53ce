// SPDX-License-Identifier: Apache-2.0
#include "data/batches/dispatch_source.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "comm/object_message.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

class IndexIterator final : public DatasetIterator {
 public:
  explicit IndexIterator(EpochBatches batches) : batches_(std::move(batches)), units_(batches_.count()) {}

  std::optional<c10::IValue> next() override {
    if (next_ >= units_) return std::nullopt;
    const int64_t unit = next_++;
    if (batches_.offsets.empty()) return batches_.indices.const_data_ptr<int64_t>()[unit];
    return batches_.indices.slice(0, batches_.offsets[unit], batches_.offsets[unit + 1]);
  }
  int64_t skip(int64_t count) override {
    const int64_t before = next_;
    next_ = std::min(units_, next_ + count);
    return next_ - before;
  }

 private:
  EpochBatches batches_;
  int64_t units_;
  int64_t next_ = 0;
};

// Rank 0 sends these numbers about a batch before its rows.
struct Announcement {
  enum { kState, kMore, kSamples, kRest, kRemainder, kPerRank };
  enum { kBytes, kRows, kValid, kNumbers };
  enum State : int64_t { kEnd, kBatch, kFailed };

  explicit Announcement(int64_t ranks) : numbers(at::zeros({kPerRank + kNumbers * ranks}, at::kLong)) {}
  int64_t& at(int64_t number) { return numbers.mutable_data_ptr<int64_t>()[number]; }
  int64_t& at(int64_t rank, int64_t number) { return at(kPerRank + kNumbers * rank + number); }

  at::Tensor numbers;
};

void broadcast(comm::Communicator& communicator, at::Tensor& tensor) {
  at::Tensor sent = tensor.to(communicator.device());
  communicator.broadcast(sent, 0);
  tensor = sent.cpu();
}

std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an error without a message";
  }
}

// From the value of read(): rank 0's own part, the encoded parts of the others, and its own encoded where other ranks
// get the same.
const std::string& message_for(const Batch& batch, int64_t process_index) {
  const auto parts = batch.value.toListRef();
  return (process_index > 0 ? parts[static_cast<size_t>(process_index)] : parts.back()).toStringRef();
}

}  // namespace

std::unique_ptr<DatasetIterator> read_indices(const EpochBatches& batches) {
  return std::make_unique<IndexIterator>(batches);
}

DispatchSource::DispatchSource(ChunkedReader chunks, const DispatchShare& share, EpochPosition begin, Make make,
                               std::shared_ptr<comm::Communicator> communicator, std::vector<int64_t> process_indices)
    : chunks_(std::move(chunks)),
      share_(share),
      end_(std::move(begin)),
      make_(std::move(make)),
      communicator_(std::move(communicator)),
      process_indices_(std::move(process_indices)) {
  if (process_indices_.empty()) {
    process_indices_.resize(static_cast<size_t>(communicator_->size()));
    std::iota(process_indices_.begin(), process_indices_.end(), 0);
  }
  num_processes_ = 1 + *std::max_element(process_indices_.begin(), process_indices_.end());
}

// Accelerate's rows: equally many for each rank, and at the end rows of the first chunk again where the last ones
// cannot be divided evenly.
std::vector<c10::IValue> DispatchSource::cut(const ChunkedReader::Chunk& chunk, Batch& batch) {
  const int64_t ranks = num_processes_;
  auto items = chunk.items;
  int64_t each = chunk.count / ranks;
  if (chunk.count % ranks != 0) {
    each += 1;
    const auto& first = chunks_.first();
    const int64_t again =
        share_.items_are_batches ? ranks : std::min<int64_t>(ranks, static_cast<int64_t>(first.size()));
    for (int64_t i = 0; i < again; ++i) items.push_back(first[static_cast<size_t>(i) % first.size()]);
  }
  const auto available = static_cast<int64_t>(items.size());
  const c10::IValue together = share_.slice ? make_(items) : c10::IValue();
  std::vector<c10::IValue> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t begin = std::min(rank * each, available), end = std::min(begin + each, available);
    const auto rows_between = [&](int64_t from, int64_t to) {
      if (!share_.items_are_batches) return to - from;
      int64_t rows = 0;
      for (int64_t i = from; i < to; ++i) rows += items[i].toTensor().numel();
      return rows;
    };
    const int64_t valid_end = std::clamp(chunk.count, begin, end);
    batch.progress.ranks.push_back({rows_between(begin, end), rows_between(begin, valid_end)});
    if (share_.slice)
      parts.push_back(share_.slice(together, begin, end, rank, ranks));
    else if (begin < end)
      parts.push_back(make_({items.begin() + begin, items.begin() + end}));
    else
      parts.push_back(tree::slice(make_({items[0]}), 0, 0));
  }
  return parts;
}

std::optional<Batch> DispatchSource::read(int64_t) {
  if (!reads()) return Batch{};
  const ChunkedReader::Chunk* chunk = chunks_.current();
  if (chunk == nullptr) return std::nullopt;
  Batch batch;
  auto parts = cut(*chunk, batch);
  auto messages = tree::new_list();
  messages.push_back(parts[0]);
  for (size_t rank = 1; rank < parts.size(); ++rank) messages.push_back(comm::encode_object(parts[rank]));
  if (first_is_shared()) messages.push_back(comm::encode_object(parts[0]));
  batch.value = messages;
  batch.progress.end_of_dataloader = chunks_.next_count() == 0;
  int64_t valid = 0;
  for (const auto& rank : batch.progress.ranks) valid += rank.valid;
  batch.progress.remainder = batch.progress.end_of_dataloader ? valid : share_.remainder;
  end_.samples += valid;
  end_.rest += chunk->count;
  batch.end = end_;
  chunks_.advance();
  return batch;
}

std::optional<Batch> DispatchSource::deliver(const Take& take) {
  const int64_t ranks = num_processes_;
  if (communicator_->size() == 1) {
    auto batch = take();
    if (!batch) return std::nullopt;
    batch->value = c10::IValue(batch->value.toListRef()[0]);
    batch->progress.rows = batch->progress.ranks[0].rows;
    return batch;
  }
  Announcement announcement(ranks);
  std::optional<Batch> batch;
  std::exception_ptr failure;
  std::string failed;
  if (reads()) {
    try {
      batch = take();
    } catch (...) {
      failure = std::current_exception();
      failed = message_of(failure);
    }
    announcement.at(Announcement::kState) = failure ? Announcement::kFailed
                                            : batch ? Announcement::kBatch
                                                    : Announcement::kEnd;
    if (failure) announcement.at(0, Announcement::kBytes) = static_cast<int64_t>(failed.size());
    if (batch) {
      announcement.at(Announcement::kMore) = !batch->progress.end_of_dataloader;
      announcement.at(Announcement::kSamples) = batch->end.samples;
      announcement.at(Announcement::kRest) = batch->end.rest;
      announcement.at(Announcement::kRemainder) = batch->progress.remainder;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        if (rank > 0 || first_is_shared())
          announcement.at(rank, Announcement::kBytes) = static_cast<int64_t>(message_for(*batch, rank).size());
        announcement.at(rank, Announcement::kRows) = batch->progress.ranks[rank].rows;
        announcement.at(rank, Announcement::kValid) = batch->progress.ranks[rank].valid;
      }
    }
  }
  broadcast(*communicator_, announcement.numbers);
  const int64_t state = announcement.at(Announcement::kState);
  if (state == Announcement::kEnd) return std::nullopt;
  if (state == Announcement::kFailed) {
    at::Tensor text = at::empty({announcement.at(0, Announcement::kBytes)}, at::kByte);
    if (reads()) std::memcpy(text.mutable_data_ptr(), failed.data(), failed.size());
    broadcast(*communicator_, text);
    if (failure) std::rethrow_exception(failure);
    fail(Status::kCancelled, "rank 0 could not read the batch: ",
         std::string(static_cast<const char*>(text.const_data_ptr()), text.nbytes()));
  }

  int64_t longest = 1;
  for (int64_t rank = 0; rank < ranks; ++rank) longest = std::max(longest, announcement.at(rank, Announcement::kBytes));
  const auto bytes = at::TensorOptions(at::kByte);
  at::Tensor sent = reads() ? at::empty({communicator_->size(), longest}, bytes) : at::Tensor();
  if (reads()) {
    auto* const to = static_cast<char*>(sent.mutable_data_ptr());
    for (int64_t rank = 1; rank < communicator_->size(); ++rank) {
      const std::string& message = message_for(*batch, process_indices_[static_cast<size_t>(rank)]);
      std::copy(message.begin(), message.end(), to + rank * longest);
    }
    sent = sent.to(communicator_->device());
  }
  at::Tensor received = at::empty({longest}, bytes.device(communicator_->device()));
  communicator_->run(comm::Collective::scatter(sent, 0, received));
  const int64_t own = process_indices_[static_cast<size_t>(communicator_->rank())];
  if (reads()) {
    batch->value = c10::IValue(batch->value.toListRef()[0]);
  } else {
    received = received.cpu();
    batch.emplace();
    batch->value = comm::decode_object({static_cast<const char*>(received.const_data_ptr()),
                                        static_cast<size_t>(announcement.at(own, Announcement::kBytes))});
    batch->end = end_;
    batch->end.samples = announcement.at(Announcement::kSamples);
    batch->end.rest = announcement.at(Announcement::kRest);
    batch->progress.end_of_dataloader = announcement.at(Announcement::kMore) == 0;
    batch->progress.remainder = announcement.at(Announcement::kRemainder);
    for (int64_t rank = 0; rank < ranks; ++rank)
      batch->progress.ranks.push_back(
          {announcement.at(rank, Announcement::kRows), announcement.at(rank, Announcement::kValid)});
  }
  batch->progress.rows = batch->progress.ranks[own].rows;
  return batch;
}

}  // namespace accel::data
