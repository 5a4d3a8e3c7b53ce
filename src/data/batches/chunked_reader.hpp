// SPDX-License-Identifier: Apache-2.0
// Reads an iterable dataset in chunks of a fixed size, one chunk ahead so that the last one is recognised.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/iterable_dataset.hpp"

namespace accel::data {

class ChunkedReader {
 public:
  using Open = std::function<std::unique_ptr<DatasetIterator>()>;
  // Which items of each chunk are used.
  struct Window {
    int64_t chunk_size = 1;
    int64_t begin = 0, end = 1;    // positions in a chunk that are used; all of the first chunk is used as well
    bool drop_last = false;        // a short last chunk is left out
    int64_t done = 0;              // items of the epoch that are not read again
    std::optional<int64_t> items;  // the epoch's number of items, where it is known
  };
  struct Chunk {
    std::vector<c10::IValue> items;  // those in the window
    int64_t count = 0;               // items of the whole chunk
  };

  // `open` starts an iteration over the epoch.
  ChunkedReader(Open open, const Window& window);

  // The current chunk; null at the end. Reads the one behind it too. After an error both continue where they stopped.
  const Chunk* current();
  int64_t next_count() const { return next_.count; }  // of the chunk behind the current one
  void advance();
  // All items of the first chunk of the epoch, with which short chunks are filled up.
  const std::vector<c10::IValue>& first();

 private:
  std::optional<c10::IValue> take();
  void fill(Chunk& chunk);

  Open open_;
  Window window_;
  std::unique_ptr<DatasetIterator> iterator_;
  std::vector<c10::IValue> first_;
  bool first_known_;
  int64_t read_ = 0;  // items of the iterator
  bool ended_ = false;
  Chunk current_, next_;
  bool current_full_ = false, next_full_ = false;
};

}  // namespace accel::data
