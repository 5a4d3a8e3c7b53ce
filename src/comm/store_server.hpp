// The server of the key-value store in which the ranks of a job meet. It speaks the protocol of LibTorch's store over
// TCP, so that StoreClient can use that one as well, where a launcher of LibTorch serves it. LibTorch's server asks the
// name servers for the name of each client, and nobody else is served until they answer.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "base/file_descriptor.hpp"

namespace accel::comm {

class StoreServer {
 public:
  // Serves who connects there, for as long as it lives.
  explicit StoreServer(FileDescriptor listener);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // How many clients have found their connection closed because there was no memory to serve them.
  int64_t clients_without_memory() const;

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace accel::comm
