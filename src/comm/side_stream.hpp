// The stream of calls that were started, on a device with streams: beside the one that the program computes on.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace accel::comm {

class SideStream {
 public:
  // Of the current device of this type.
  explicit SideStream(c10::DeviceType device);

  // The end of what this thread has put on its current stream so far.
  c10::Event mark() const;

  // While it lives, this thread works on the side stream; behind the mark where there is one.
  class Guard {
   public:
    explicit Guard(const SideStream& side);
    Guard(const SideStream& side, c10::Event& mark) : Guard(side) { mark.block(side.stream_); }
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    // Waits until the device has done what was put there.
    void synchronize() const { side_.guard_.synchronizeStream(side_.stream_); }

   private:
    const SideStream& side_;
    const c10::Device former_device_;
    const c10::Stream former_stream_;
  };

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
};

}  // namespace accel::comm
