// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/communication_stream.hpp"

#include <c10/util/Exception.h>

namespace accel::comm {

std::optional<c10::Stream> find_pool_stream(c10::Device device) {
  try {
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  } catch (const c10::Error&) {  // LibTorch's base class of devices
    return std::nullopt;
  }
}

c10::Stream side_stream(c10::Device device) {
  const std::optional<c10::Stream> stream = find_pool_stream(device);
  return stream ? *stream : c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

CommunicationStream::CommunicationStream(c10::Device device)
    : CommunicationStream(
          side_stream(device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice())) {}

CommunicationStream::CommunicationStream(c10::Stream stream) : guard_(stream.device_type()), stream_(stream) {}

c10::Event CommunicationStream::mark() const {
  c10::Event mark(stream_.device_type());
  mark.record(guard_.getStream(stream_.device()));
  return mark;
}

c10::Event CommunicationStream::end() const {
  c10::Event end(stream_.device_type());
  end.record(stream_);
  return end;
}

CommunicationStream::Guard::Guard(const CommunicationStream& side)
    : side_(side),
      former_device_(side.guard_.exchangeDevice(side.stream_.device())),
      former_stream_(side.guard_.exchangeStream(side.stream_)) {}

CommunicationStream::Guard::~Guard() {
  side_.guard_.exchangeStream(former_stream_);
  side_.guard_.uncheckedSetDevice(former_device_);
}

}  // namespace accel::comm
