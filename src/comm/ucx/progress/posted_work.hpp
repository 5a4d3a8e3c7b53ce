// SPDX-License-Identifier: Apache-2.0
// The c10d Work of one call: waits for it, and has its error and its future.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "comm/backend/notifying_work.hpp"

namespace accel::comm::ucx {

class UcxWork;

// Progresses and fails the call behind a work: its group.
class WorkProgress {
 public:
  // Makes progress until `work` is complete, unless another thread does.
  virtual void progress_until_complete(UcxWork& work) = 0;
  // Fails all open calls of the group.
  virtual void abort(const std::string& reason) = 0;

 protected:
  ~WorkProgress() = default;
};

// Names a message in errors.
struct MessageName {
  bool receives;
  int rank;  // of the other one in the job; kAnyRank
  int tag;

  std::string text() const;  // "recv from rank 1 with tag 0"
};

class UcxWork final : public NotifyingWork {
 public:
  static constexpr uint64_t kNoSequence = ~uint64_t{0};

  UcxWork(std::shared_ptr<WorkProgress> group, int rank, c10d::OpType operation, std::string name,
          std::vector<at::Tensor> outputs);
  UcxWork(std::shared_ptr<WorkProgress> group, int rank, c10d::OpType operation, MessageName name,
          std::vector<at::Tensor> outputs);

  // Throws the error of the call. The calling thread makes progress itself unless another thread does.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override { return source_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  void on_end(OnEnd callback) override;
  uint64_t getSequencenumber() const override { return sequence_; }

  // Names the call in errors: "reduce #12", "recv from rank 1 with tag 0".
  std::string title() const;
  // Once, before anything can fail. `call` is the function of the C API that led to it; it may be null.
  void name_call(const char* call, uint64_t sequence) {
    call_ = call;
    set_sequence(sequence);
  }
  // The number of the collective that it is in.
  void set_sequence(uint64_t sequence) { sequence_.store(sequence, std::memory_order_relaxed); }
  // For messages.
  void set_received(int from, size_t bytes) {
    source_ = from;
    received_bytes_ = static_cast<int64_t>(bytes);
  }
  int64_t received_bytes() const override { return received_bytes_; }
  void set_blocks(std::shared_ptr<std::vector<at::Tensor>> blocks) { blocks_ = std::move(blocks); }
  std::vector<at::Tensor> blocks() const override { return blocks_ != nullptr ? *blocks_ : std::vector<at::Tensor>(); }
  // Once. Runs the callbacks on the calling thread, which must hold no lock; they see the thread state of the caller,
  // where that was saved.
  void complete(std::exception_ptr error, const std::unique_ptr<at::ThreadLocalState>& state) noexcept;

 private:
  void mark(c10::ivalue::Future& future, const std::exception_ptr& error) const;

  const std::shared_ptr<WorkProgress> group_;
  const std::string name_;
  const std::optional<MessageName> message_;  // set: names it in the place of `name_`
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<std::vector<at::Tensor>> blocks_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when asked for; under mutex_
  OnEnd on_end_;                                    // under mutex_
  const char* call_ = nullptr;
  std::atomic<uint64_t> sequence_{kNoSequence};
  int source_ = -1;
  int64_t received_bytes_ = 0;
};

}  // namespace accel::comm::ucx
