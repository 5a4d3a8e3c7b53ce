// SPDX-License-Identifier: Apache-2.0
#include "data/batches/chunked_reader.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace accel::data {

ChunkedReader::ChunkedReader(Open open, const Window& window)
    : open_(std::move(open)), window_(window), first_known_(window.done == 0), read_(window.done) {}

std::optional<c10::IValue> ChunkedReader::take() {
  auto item = iterator_->next();
  if (item) {
    ++read_;
    return item;
  }
  require(!window_.items || read_ >= *window_.items, Status::kInvalidState, "the stream ended after ", read_,
          " items; expected ", window_.items.value_or(0), ", its length");
  ended_ = true;
  return std::nullopt;
}

// Continues with a chunk that an error left half read.
void ChunkedReader::fill(Chunk& chunk) {
  if (iterator_ == nullptr) {
    auto iterator = open_();
    if (window_.done > 0) iterator->skip(window_.done);
    iterator_ = std::move(iterator);
  }
  const bool first = first_known_ && read_ - chunk.count == 0;
  while (chunk.count < window_.chunk_size && !ended_) {
    const bool wanted = chunk.count >= window_.begin && chunk.count < window_.end;
    if (!wanted && !first && window_.items) {
      // Items of other ranks need not be made here when the end is known.
      const int64_t to = chunk.count < window_.begin ? window_.begin : window_.chunk_size;
      const int64_t count = std::min(to - chunk.count, *window_.items - read_);
      if (count > 0) {
        iterator_->skip(count);
        read_ += count;
        chunk.count += count;
        continue;
      }
    }
    auto item = take();
    if (!item) break;
    ++chunk.count;
    if (wanted) chunk.items.push_back(*item);
    if (first && !window_.drop_last) first_.push_back(std::move(*item));
  }
  if (window_.drop_last && chunk.count < window_.chunk_size) chunk = {};
}

const ChunkedReader::Chunk* ChunkedReader::current() {
  if (!current_full_) fill(current_);
  current_full_ = true;
  if (current_.count == 0) return nullptr;
  if (!next_full_) fill(next_);
  next_full_ = true;
  return &current_;
}

void ChunkedReader::advance() {
  current_ = std::exchange(next_, {});
  next_full_ = false;
}

const std::vector<c10::IValue>& ChunkedReader::first() {
  if (first_known_) return first_;
  const auto iterator = open_();
  std::vector<c10::IValue> items;
  while (static_cast<int64_t>(items.size()) < window_.chunk_size)
    if (auto item = iterator->next())
      items.push_back(std::move(*item));
    else
      break;
  first_ = std::move(items);
  first_known_ = true;
  return first_;
}

}  // namespace accel::data
