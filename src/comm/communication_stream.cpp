#include "comm/communication_stream.hpp"

namespace accel::comm {

CommunicationStream::CommunicationStream(c10::DeviceType device)
    : guard_(device), stream_(guard_.getStreamFromGlobalPool(guard_.getDevice())) {}

c10::Event CommunicationStream::mark() const {
  c10::Event mark(stream_.device_type());
  mark.record(guard_.getStream(guard_.getDevice()));
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
