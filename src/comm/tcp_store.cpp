#include "comm/tcp_store.hpp"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>

#include "comm/timed_store.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

c10d::TCPStoreOptions store_options(const Address& address, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(address.port);
  options.waitWorkers = false;  // we wait ourselves, to be able to name who is missing
  options.timeout = timeout;
  return options;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> serve_store(const Address& address, FileDescriptor listener, Milliseconds timeout) {
  auto options = store_options(address, std::max(timeout, Milliseconds(1)));
  options.isServer = true;
  options.masterListenFd = listener.release();
  return c10::make_intrusive<c10d::TCPStore>(address.host, options);
}

c10::intrusive_ptr<c10d::Store> reach_store(const Address& address, Milliseconds timeout) {
  const auto limit = std::max(timeout, Milliseconds(1));
  return c10::make_intrusive<TimedStore>(
      [=]() -> c10::intrusive_ptr<c10d::Store> {
        return c10::make_intrusive<c10d::TCPStore>(address.host, store_options(address, limit));
      },
      limit);
}

}  // namespace accel::comm
