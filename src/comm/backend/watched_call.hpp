// SPDX-License-Identifier: Apache-2.0
// A watched call: one of a device, whose result a stream of the application waits for while the application goes on. A
// thread of the library finds its errors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <mutex>
#include <optional>
#include <vector>

namespace c10d {
class Work;
}  // namespace c10d

namespace accel::comm {

class WatchedCall {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  // Keeps the tensors, to which a stream may write even if the call fails. No device: it has no streams.
  WatchedCall(WorkPointer work, std::vector<at::Tensor> tensors, std::optional<c10::Device> device);

  // Returns when this thread's current stream is behind the result, or the result is there. Throws the error of the
  // call. A stream that is behind it orders uses of the memory, so from then on the call keeps no tensors.
  void order_stream();
  // Whether the call has ended, for the thread that watches it.
  bool is_complete() const;
  // The stream of the thread that watches is behind the result, unless one of the application's is. Throws the error.
  void finish() const;
  // Whether nobody gets an error because a stream waits already. Otherwise order_stream() throws it.
  bool is_late(const std::exception_ptr& error);
  // Null from when a stream waits.
  WorkPointer work() const;

 private:
  const std::optional<c10::Device> device_;
  mutable std::mutex mutex_;
  WorkPointer work_;
  std::vector<at::Tensor> tensors_;
  std::optional<c10::Event> ordered_;  // behind the result, on the stream that waits for it
  std::exception_ptr error_;
};

}  // namespace accel::comm
