// SPDX-License-Identifier: Apache-2.0
// Server of the key-value store for the rendezvous. It speaks the protocol of LibTorch's TCPStore, so that StoreClient
// also works with a store that torchrun serves. LibTorch's own server asks DNS for the name of each client, and serves
// no other client until the name server answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "os/file_descriptor.hpp"

namespace accel::comm {

class StoreServer {
 public:
  // Serves the clients that connect to the listener, during its lifetime. With a `secret` those that prove that they
  // know it; the others lose their connection, as those do that are silent for `introduction_time` before.
  explicit StoreServer(FileDescriptor listener, std::string secret = {},
                       std::chrono::milliseconds introduction_time = std::chrono::seconds(10));
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // The number of clients whose connection was closed for lack of memory.
  int64_t clients_without_memory() const;
  // The number of those that did not know the secret, or were silent.
  int64_t strangers() const;

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace accel::comm
