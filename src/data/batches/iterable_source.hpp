// SPDX-License-Identifier: Apache-2.0
// Batches of an iterable dataset, for one rank. @accelerate IterableDatasetShard
#pragma once

#include <memory>

#include "comm/communicator.hpp"
#include "data/batches/batch_source.hpp"
#include "data/batches/chunked_reader.hpp"
#include "data/collate.hpp"

namespace accel::data {

// This rank's share of each step.
struct IterableShare {
  int64_t num_processes = 1;
  int64_t process_index = 0;
  int64_t rows = 1;  // of a rank's batch
  bool drop_last = false;
  int64_t remainder = -1;  // of the epoch's last global batch, where that is known beforehand
};

// Iterates over the iterators of a position one after another, without the items that were taken from them.
ChunkedReader::Open open_readers(std::shared_ptr<const IterableDataset> stream, int64_t epoch,
                                 const EpochPosition& position);

// All ranks read the same items, and each keeps its part of every chunk.
class IterableSource final : public BatchSource {
 public:
  IterableSource(ChunkedReader chunks, const IterableShare& share, EpochPosition begin, Collation collation);
  std::optional<Batch> read(int64_t index) override;

 private:
  ChunkedReader chunks_;
  IterableShare share_;
  EpochPosition end_;
  Collation collation_;
};

// Each rank reads shards of its own. The ranks exchange how many items they have, so that all end together.
class ShardedIterableSource final : public BatchSource {
 public:
  ShardedIterableSource(ChunkedReader chunks, const IterableShare& share, EpochPosition begin, Collation collation,
                        std::shared_ptr<comm::Communicator> communicator, const std::vector<int64_t>& process_indices);
  std::optional<Batch> read(int64_t index) override;
  std::optional<Batch> deliver(const Take& take) override;

 private:
  ChunkedReader chunks_;
  IterableShare share_;
  EpochPosition end_;
  Collation collation_;
  std::shared_ptr<comm::Communicator> communicator_;
  std::vector<int64_t> ranks_;  // for each process_index one rank that has its items; others may have the same
  std::optional<Batch> held_;   // read, and not returned because another rank failed
};

}  // namespace accel::data
