// SPDX-License-Identifier: Apache-2.0
// Host ring: how the host reads tensors of accelerators for which it has no memory of their size. Two page-locked
// chunks are used again and again: while the host takes one, the device copies into the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <functional>

namespace accel::tensor {

// Takes the bytes of a tensor, one part after the other.
using VisitBytes = std::function<void(const char* data, size_t size)>;

// While it lives, its thread reads through it.
class HostRing {
 public:
  static constexpr size_t kChunks = 2;
  static constexpr size_t kLeastBytes = size_t{64} << 10;
  static constexpr size_t kDefaultBytes = size_t{64} << 20;
  static constexpr size_t kMostBytes = size_t{512} << 20;

  // Page-locked memory of at most so many bytes, taken when a tensor needs it. For less than two pages, and for devices
  // without such memory: ordinary memory, and copies wait.
  explicit HostRing(size_t bytes);
  ~HostRing();
  HostRing(const HostRing&) = delete;
  HostRing& operator=(const HostRing&) = delete;

  // Reads a dense tensor of an accelerator, in the order of its memory. The copies are work of this thread's current
  // stream, and have ended when this returns or throws.
  void read(const at::Tensor& tensor, const VisitBytes& visit);

 private:
  at::Tensor& chunk(size_t number, size_t bytes, bool page_locked);

  const size_t chunk_bytes_;  // 0: no page-locked memory
  HostRing* const former_;
  std::array<at::Tensor, kChunks> chunks_;
};

// Reads a tensor that is dense, in the order of its memory: of the CPU as a whole, and of an accelerator through the
// ring of this thread, or one of its own.
void read_on_host(const at::Tensor& tensor, const VisitBytes& visit);

// A copy in ordinary memory with the same strides, or the tensor itself if it is on the CPU.
at::Tensor on_host(const at::Tensor& tensor);

}  // namespace accel::tensor
