// LibTorch's store over TCP: served by one process, reached by all with a limit on each operation.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "base/file_descriptor.hpp"
#include "comm/socket.hpp"

namespace c10d {
class Store;
}

namespace accel::comm {

// Serves for as long as it lives.
c10::intrusive_ptr<c10d::Store> serve_store(const Address& address, FileDescriptor listener,
                                            std::chrono::milliseconds timeout);

// Somebody must listen at that address.
c10::intrusive_ptr<c10d::Store> reach_store(const Address& address, std::chrono::milliseconds timeout);

}  // namespace accel::comm
