// SPDX-License-Identifier: Apache-2.0
// Snapshots: copies of nested values, made at the speed of memory, which are written while the originals change.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace accel::checkpoint {

struct Snapshot {
  std::vector<c10::IValue> values;
  size_t bytes = 0;                  // of the tensors
  std::string obstacle;              // why there are no copies, as the memory that was missing; empty: there are
  std::vector<c10::Device> devices;  // the accelerators
  std::vector<c10::Event> copied;    // of each of them: its copies are complete

  // Waits for the copies of accelerators, then has this thread read them beside the training: on a stream of its own of
  // each accelerator that has more than one, until the thread ends.
  void begin_to_read() const;
};

// Takes one snapshot after the other into the same memory. The pages of new memory are cleared at their first access,
// which takes longer than the copy; so the memory of the last snapshot is cached, unless a snapshot still uses it.
class SnapshotMemory {
 public:
  // Lists, tuples and maps are copied, and of tensors the parts of their storages that they show; tensors that share a
  // storage share its copy. Tensors of the CPU have been copied when this returns. Tensors of accelerators are copied
  // inside of these, at the speed of their memory, in the order of the current stream's work: the caller goes on at
  // once, and what it queues next comes after the copies. On each accelerator they take at most `device_bytes`, or half
  // of the memory that is free; if that is too little, there is an obstacle instead.
  Snapshot take(const std::vector<c10::IValue>& values, std::optional<int64_t> device_bytes = std::nullopt);
  void release() { host_ = at::Tensor(); }

 private:
  at::Tensor host_;                                      // bytes
  std::unordered_map<c10::Device, int64_t> on_devices_;  // bytes of the last copies on each accelerator
};

}  // namespace accel::checkpoint
