// SPDX-License-Identifier: Apache-2.0
// Block: a module whose offloaded weights come to the device together, before its forward, and go after it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace accel::bigmodel {

// A parameter or buffer that is on the device meta unless a block with it is in use. The tensor stays the same object.
class OffloadedTensor {
 public:
  // `source` has the values: on the CPU and contiguous, maybe in another dtype. The tensor becomes a meta tensor.
  OffloadedTensor(std::string name, at::Tensor tensor, const at::Tensor& source, at::ScalarType dtype,
                  c10::Device home);

  const std::string& name() const { return name_; }
  const at::Tensor& tensor() const { return tensor_; }
  const at::Tensor& source() const { return source_; }
  at::ScalarType dtype() const { return dtype_; }  // while it is in use
  int64_t bytes() const;                           // the same
  // The values as they are in use, on the CPU.
  at::Tensor values() const;

  // Blocks that share the tensor may be in use at the same time: it shows the memory of the latest one.
  void show(size_t block, at::Tensor data);
  void hide(size_t block);
  // For good: the values are back on the device where they were.
  void restore();
  bool is_restored() const { return is_restored_; }

 private:
  std::string name_;
  at::Tensor tensor_, source_, absent_;
  at::ScalarType dtype_;
  c10::Device home_;
  std::vector<std::pair<size_t, at::Tensor>> shown_;
  bool is_restored_ = false;
};

struct Block {
  std::string path;  // of the module
  std::vector<std::shared_ptr<OffloadedTensor>> tensors;
  int64_t bytes = 0;  // of the tensors in use
};

// Whether the device can compute with the block's weights where they are.
bool can_be_used_in_place(const Block& block, c10::Device device);

}  // namespace accel::bigmodel
