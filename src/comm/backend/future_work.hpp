// SPDX-License-Identifier: Apache-2.0
// A c10d Work that ends as its future does, whose value the outputs are. Waits have no deadline of their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <chrono>
#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace accel::comm {

class FutureWork : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;

  // `devices` are those of the outputs that have streams, each once: on them what follows a wait is ordered behind what
  // was queued when the future was completed.
  FutureWork(int rank, Tensors outputs, std::vector<c10::Device> devices)
      : Work(rank),
        outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::move(devices))) {}

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->hasValue(); }
  std::exception_ptr exception() const override { return future_->exception_ptr(); }
  bool wait(std::chrono::milliseconds /*timeout*/ = kNoTimeout) override {
    future_->waitAndThrow();
    return true;
  }
  void synchronize() override { wait(); }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 protected:
  // Once, one of them. They run the future's callbacks. The present streams of the devices have what leads to the
  // outputs.
  void succeed() { future_->markCompleted(c10::IValue(outputs_)); }
  void fail(std::exception_ptr error) { future_->setError(std::move(error)); }

 private:
  const Tensors outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace accel::comm
