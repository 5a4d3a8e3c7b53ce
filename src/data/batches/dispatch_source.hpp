// SPDX-License-Identifier: Apache-2.0
// Dispatched batches: rank 0 reads and sends each rank its part. @accelerate DataLoaderDispatcher
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "data/batches/batch_sampler.hpp"
#include "data/batches/batch_source.hpp"
#include "data/batches/chunked_reader.hpp"
#include "data/loader_input.hpp"

namespace accel::data {

struct DispatchShare {
  int64_t size = 1;  // items that are read at a time for all ranks
  bool drop_last = false;
  bool items_are_batches = false;  // each rank gets whole batches
  int64_t remainder = -1;          // of the epoch's last global batch, where that is known beforehand
  SliceFunction slice;             // may be empty
};

// Each rank's rows are collated on rank 0 and sent as a value, so that ranks may get different shapes and leaves that
// are not tensors. Ranks with the same process_index get the same.
class DispatchSource final : public BatchSource {
 public:
  using Make = std::function<c10::IValue(std::vector<c10::IValue> items)>;
  DispatchSource(ChunkedReader chunks, const DispatchShare& share, EpochPosition begin, Make make,
                 std::shared_ptr<comm::Communicator> communicator, std::vector<int64_t> process_indices);
  std::optional<Batch> read(int64_t index) override;
  bool reads() const override { return communicator_->rank() == 0; }
  std::optional<Batch> deliver(const Take& take) override;

 private:
  std::vector<c10::IValue> cut(const ChunkedReader::Chunk& chunk, Batch& batch);
  bool first_is_shared() const { return std::count(process_indices_.begin(), process_indices_.end(), 0) > 1; }

  ChunkedReader chunks_;
  DispatchShare share_;
  EpochPosition end_;
  Make make_;
  std::shared_ptr<comm::Communicator> communicator_;
  std::vector<int64_t> process_indices_;  // of each rank
  int64_t num_processes_;
};

// Iterates over the indices of an epoch: numbers, or tensors of them where batches have any size.
std::unique_ptr<DatasetIterator> read_indices(const EpochBatches& batches);

}  // namespace accel::data
