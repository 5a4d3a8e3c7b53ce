// SPDX-License-Identifier: Apache-2.0
// Exchange memory: tensors that the ranks of a host exchange in place, without copies, because each rank can map those
// of the others. They are used again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

class ExchangeMemory {
 public:
  explicit ExchangeMemory(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  // Without values. The memory is used again when no tensor refers to it, and freed when that has long not happened.
  at::Tensor take(at::IntArrayRef sizes, const at::TensorOptions& options);
  // Whether a tensor has memory of this, to which no other one refers.
  bool has_alone(const at::Tensor& tensor);
  // Whether the ranks map each other's.
  bool is_mapped() const;
  // Keeps a block that the other ranks will read in place. Returns its number, which grows.
  uint64_t keep_for_readers(at::Tensor block);
  // All ranks have begun to exchange the block with this number, so that they have read those before.
  void let_go_of_blocks_before(uint64_t number);

 private:
  static constexpr size_t kMostBuffers = 256;
  // After so many others have been taken a free buffer goes: making it again is little beside as many exchanges.
  static constexpr uint64_t kLongestUnused = 4096;

  struct Buffer {
    at::Tensor memory;  // flat
    uint64_t used_by;   // the number of the latest take()
  };
  template <typename Condition>
  void free_buffers(const Condition& condition);

  std::shared_ptr<comm::Communicator> group_;
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
  uint64_t takes_ = 0;
  uint64_t last_kept_ = 0;
  std::map<uint64_t, at::Tensor> read_by_others_;  // by number
};

}  // namespace accel::parallel
