// SPDX-License-Identifier: Apache-2.0
// Builds the task of one call: checks its tensors, makes them contiguous, splits them into blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/backend/collective_call.hpp"
#include "comm/ucx/progress/task.hpp"

namespace accel::comm::ucx {

class TaskBuilder {
 public:
  // `rank` and `size` are those of the group.
  TaskBuilder(int rank, int size, const CollectiveCall& call, Task& task)
      : rank_(rank), size_(size), call_(call), task_(task) {}

  // The next collective of the call. `described` is the tensor that all ranks must agree on.
  void begin(const at::Tensor& described, int64_t root = -1);
  void begin_barrier();
  // Adds a reduction to the current collective: `described` is combined with the tensors of the other ranks.
  void combine(const at::Tensor& described, const c10d::ReduceOp& reduction);

  // Memory of a tensor that is read, or written: the tensor's own where it is contiguous, else that of a copy. An
  // output whose former contents matter is also an input.
  Outgoing read(const at::Tensor& tensor);
  Incoming write(const at::Tensor& tensor);
  Incoming update(const at::Tensor& tensor);

  // The blocks of the current collective.
  void send_to(int peer, Outgoing block) { current().outgoing[peer] = block; }
  void send_to_all(Outgoing block);
  void receive_from(int peer, Incoming block) { current().incoming[peer] = block; }
  // all_reduce and reduce: the whole tensor, which the result replaces.
  void combine_whole(Incoming block);
  // Equal parts of one block, one a rank.
  void send_parts(Outgoing whole);
  void receive_parts(Incoming whole);
  // The blocks of all ranks stay where they are; each is like `own`.
  void show(const at::Tensor& own);
  void set_splits(std::vector<int64_t> sent, const std::vector<int64_t>& received);
  Collective& current() { return task_.parts.back(); }

  // Throws kInvalid with the call's name in front.
  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) refuse(text(parts...));
  }
  void require_rank(int64_t rank, const char* what) const;
  void require_like(const at::Tensor& tensor, const at::Tensor& other, const char* what) const;
  // `tensor` holds as many as `part` on every rank together.
  void require_times(const at::Tensor& tensor, const at::Tensor& part, const char* what) const;
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  [[noreturn]] void refuse(const std::string& reason) const;
  void check(const at::Tensor& tensor) const;

  const int rank_, size_;
  const CollectiveCall& call_;
  Task& task_;
};

// Why the group cannot move the tensor, which must be dense and on the CPU; empty if it can.
std::string defect_of(const at::Tensor& tensor);

}  // namespace accel::comm::ucx
