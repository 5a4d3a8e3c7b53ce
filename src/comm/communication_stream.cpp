#include "comm/communication_stream.hpp"

#include <c10/util/Exception.h>

namespace accel::comm {

c10::Stream stream_from_pool(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  try {
    return guard.getStreamFromGlobalPool(device);
  } catch (const c10::Error&) {
    return guard.getStream(device);
  }
}

CommunicationStream::CommunicationStream(c10::Device device)
    : guard_(device.type()), stream_(stream_from_pool(device.has_index() ? device : guard_.getDevice())) {}

c10::Event CommunicationStream::mark() const {
  c10::Event mark(stream_.device_type());
  mark.record(guard_.getStream(stream_.device()));
  return mark;
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
