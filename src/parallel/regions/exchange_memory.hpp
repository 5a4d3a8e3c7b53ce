// Exchange memory: tensors that the ranks of a host exchange in place, without copies, because each rank can map those
// of the others. They are used again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

class ExchangeMemory {
 public:
  explicit ExchangeMemory(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  // Without values. The memory is used again when no tensor refers to it.
  at::Tensor take(at::IntArrayRef sizes, const at::TensorOptions& options);
  // Whether a tensor has memory of this, to which no other one refers.
  bool has_alone(const at::Tensor& tensor);

 private:
  static constexpr size_t kMostBuffers = 16;

  std::shared_ptr<comm::Communicator> group_;
  std::mutex mutex_;
  std::vector<at::Tensor> buffers_;  // flat
};

}  // namespace accel::parallel
