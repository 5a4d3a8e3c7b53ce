// SPDX-License-Identifier: Apache-2.0
// Block memory: the weights of a block side by side in one buffer on the device that computes with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bigmodel/streams/block.hpp"
#include "comm/backend/communication_stream.hpp"

namespace accel::bigmodel {

// A buffer with a block in it.
struct FilledBuffer {
  at::Tensor buffer;                  // bytes
  std::vector<at::Tensor> tensors;    // in it, in the order of the block's
  std::shared_ptr<c10::Event> ready;  // of a device with streams: when the copies are done
};

// A buffer that is not in use any more.
struct SpareBuffer {
  at::Tensor buffer;
  std::shared_ptr<c10::Event> released;  // what used it is done then
};

// The size of the buffer of a block.
int64_t buffer_bytes(const Block& block);

// Copies blocks to a device, for one thread. Host memory for copies is pinned where the device can: a ring of a few
// parts, so that the host fills one while the device takes another.
class BlockUploader {
 public:
  explicit BlockUploader(c10::Device device);

  // In `spare` if there is one, which is large enough.
  FilledBuffer upload(const Block& block, std::optional<SpareBuffer> spare);

  // Makes what this thread computes next wait for the copies.
  static void wait_for(FilledBuffer& filled);
  // An event after what this thread computes now; null for the CPU.
  std::shared_ptr<c10::Event> mark() const;

 private:
  struct HostPart {
    at::Tensor memory;
    std::shared_ptr<c10::Event> taken;
  };

  HostPart& next_host_part();
  void send(const HostPart& part, const at::Tensor& buffer, int64_t begin, int64_t size);

  c10::Device device_;
  std::optional<comm::CommunicationStream> side_;  // nothing: copies are in the order of the device's other work
  bool pinned_ = false;
  std::vector<HostPart> ring_;
  size_t next_ = 0;
};

}  // namespace accel::bigmodel
