// Snapshots: copies of nested values, made at the speed of memory, which are written while the originals change.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <vector>

namespace accel::checkpoint {

struct Snapshot {
  std::vector<c10::IValue> values;
  size_t bytes = 0;                // of the tensors
  std::vector<c10::Event> copied;  // of each accelerator: its copies are complete

  // Waits for the copies from accelerators. Any thread; before the tensors are read.
  void wait() const;
};

// Takes one snapshot after the other into the same memory. The pages of new memory are cleared at their first access,
// which takes longer than the copy; so the memory of the last snapshot is kept, unless a snapshot still uses it.
class SnapshotMemory {
 public:
  // Lists, tuples and maps are copied, and of tensors the parts of their storages that they show; tensors that share a
  // storage share its copy. Tensors of the CPU have been copied when this returns. Tensors of accelerators are copied
  // in the order of the current stream's work: the caller goes on at once, and what it queues next comes after the
  // copies.
  Snapshot take(const std::vector<c10::IValue>& values);
  void release() { host_ = at::Tensor(); }

 private:
  at::Tensor host_;  // bytes
};

}  // namespace accel::checkpoint
