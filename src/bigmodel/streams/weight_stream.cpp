// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/weight_stream.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace accel::bigmodel {
WeightStream::Blocks WeightStream::blocks_of(const std::vector<std::vector<at::Tensor>>& groups) {
  Blocks blocks;
  for (const std::vector<at::Tensor>& group : groups) {
    Block block{"group " + std::to_string(blocks.all.size()), {}, 0};
    for (const at::Tensor& tensor : group) {
      require(tensor.is_cpu() && tensor.layout() == at::kStrided, Status::kInvalidArgument, "a tensor of ", block.path,
              " is on ", tensor.device(), "; expected dense ones on the CPU");
      const at::Tensor shown = at::empty({0}, tensor.options().device(at::kMeta));
      block.tensors.push_back(
          std::make_shared<OffloadedTensor>(block.path, shown, tensor, tensor.scalar_type(), tensor.device()));
    }
    block.bytes = buffer_bytes(block);
    blocks.largest = std::max(blocks.largest, block.bytes);
    blocks.all.push_back(std::move(block));
  }
  return blocks;
}

WeightStream::WeightStream(const std::vector<std::vector<at::Tensor>>& groups, c10::Device device,
                           std::optional<int64_t> prefetch_bytes)
    : WeightStream(blocks_of(groups), device, prefetch_bytes) {}

WeightStream::WeightStream(Blocks blocks, c10::Device device, std::optional<int64_t> prefetch_bytes)
    : stream_(std::move(blocks.all), device, prefetch_bytes.value_or(blocks.largest)), uses_(stream_.blocks().size()) {}

size_t WeightStream::check(int64_t group) const {
  require(group >= 0 && static_cast<size_t>(group) < uses_.size(), Status::kInvalidArgument, "group is ", group,
          "; expected one of the ", uses_.size(), " of the stream");
  return static_cast<size_t>(group);
}

std::vector<at::Tensor> WeightStream::begin_use(int64_t group) {
  const size_t index = check(group);
  stream_.acquire(index);
  {
    const std::lock_guard lock(mutex_);
    uses_[index]++;
  }
  std::vector<at::Tensor> tensors;
  for (const auto& tensor : stream_.blocks()[index].tensors) tensors.push_back(tensor->tensor().detach());
  return tensors;
}

void WeightStream::end_use(int64_t group) {
  const size_t index = check(group);
  {
    const std::lock_guard lock(mutex_);
    require(uses_[index] > 0, Status::kInvalidState, "group ", group, " is not in use; expected that its use began");
    uses_[index]--;
  }
  stream_.release(index);
}

}  // namespace accel::bigmodel
