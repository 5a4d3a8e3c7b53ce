// SPDX-License-Identifier: Apache-2.0
// Store client: speaks the protocol of LibTorch's TCPStore, with a time limit on all operations. LibTorch's client
// waits without a limit for a server that is stopped or behind a broken link, and asks DNS for the name of each address
// that it connects to, which takes seconds if no name server answers.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_identity.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm {

// Operations throw Error(Status::kTimeout) without an answer within the store's timeout, Error(Status::kPeerLost) if
// the server is gone, and Error(Status::kCancelled) if accel_interrupt() ends them. The next operation connects again.
class StoreClient final : public c10d::Store {
 public:
  // A server must listen at that address. With an `identity` it must be a StoreServer, and both prove that they know
  // the secret: else Error(Status::kInvalidState).
  StoreClient(Address address, std::chrono::milliseconds timeout, std::optional<StoreIdentity> identity = {});

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  int64_t add(const std::string& key, int64_t value) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  class Request;
  class Exchange;

  void introduce(const Exchange& exchange) const;

  // Sends the request and returns what `answer` reads.
  template <typename Answer>
  auto ask(std::chrono::milliseconds limit, const Request& request, const Answer& answer);

  const Address address_;
  const std::optional<StoreIdentity> identity_;
  std::timed_mutex mutex_;
  FileDescriptor connection_;  // closed if the last operation failed
};

}  // namespace accel::comm
