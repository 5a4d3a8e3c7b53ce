// SPDX-License-Identifier: Apache-2.0
// Communication stream: a stream of the device on which asynchronous collectives run beside the computation.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace accel::comm {

// A stream beside the current one; nothing if the device has no pool of them.
std::optional<c10::Stream> find_pool_stream(c10::Device device);
// A stream beside the current one, or the current stream of a device without a pool.
c10::Stream side_stream(c10::Device device);

class CommunicationStream {
 public:
  // On the side_stream() of the device.
  explicit CommunicationStream(c10::Device device);
  explicit CommunicationStream(c10::Stream stream);

  c10::Device device() const { return stream_.device(); }
  // An event after the work that is now queued on this thread's current stream of the device.
  c10::Event mark() const;
  // An event after the work that is now queued on the communication stream.
  c10::Event end() const;

  // During its lifetime this thread's current stream is the communication stream, which waits for `mark` first if
  // given.
  class Guard {
   public:
    explicit Guard(const CommunicationStream& side);
    Guard(const CommunicationStream& side, c10::Event& mark) : Guard(side) { mark.block(side.stream_); }
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    const CommunicationStream& side_;
    const c10::Device former_device_;
    const c10::Stream former_stream_;
  };

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
};

}  // namespace accel::comm
