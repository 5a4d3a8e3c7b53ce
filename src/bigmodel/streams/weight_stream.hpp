// SPDX-License-Identifier: Apache-2.0
// Weight stream: blocks that come ahead, for modules that are not of this library, such as those of torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "bigmodel/streams/block_stream.hpp"

namespace accel::bigmodel {

class WeightStream {
 public:
  // Groups of tensors on the CPU, in the order in which they are used first. `prefetch_bytes`: those of the largest
  // group if nothing.
  WeightStream(const std::vector<std::vector<at::Tensor>>& groups, c10::Device device,
               std::optional<int64_t> prefetch_bytes);

  // The tensors of a group on the device, ready for what this thread computes next. They may be used until end_use().
  std::vector<at::Tensor> begin_use(int64_t group);
  void end_use(int64_t group);
  // All groups that are needed were used once more: the next ones come in this order.
  void end_pass() { stream_.end_pass(); }

  BlockStream::Statistics statistics() const { return stream_.statistics(); }

 private:
  struct Blocks {
    std::vector<Block> all;
    int64_t largest = 0;  // bytes
  };
  static Blocks blocks_of(const std::vector<std::vector<at::Tensor>>& groups);
  WeightStream(Blocks blocks, c10::Device device, std::optional<int64_t> prefetch_bytes);
  size_t check(int64_t group) const;

  BlockStream stream_;
  std::mutex mutex_;
  std::vector<int> uses_;  // by group
};

}  // namespace accel::bigmodel
