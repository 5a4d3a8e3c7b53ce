// A client of LibTorch's store over TCP whose operations all end in time. LibTorch's own waits for an answer without a
// limit, and a server that is stopped, or behind a broken link, gives none; and it asks the name servers for the name
// of each address that it connects to, which takes seconds where none answers.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/file_descriptor.hpp"
#include "comm/socket.hpp"

namespace accel::comm {

// An operation without an answer within the store's timeout is an Error(Status::kTimeout), one whose server is gone an
// Error(Status::kPeerLost), one that accel_interrupt() ends an Error(Status::kCancelled). The next one connects again.
class StoreClient final : public c10d::Store {
 public:
  // Somebody must listen at that address.
  StoreClient(Address address, std::chrono::milliseconds timeout);

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

  // Sends what `request` asks for and returns what `answer` reads of the exchange.
  template <typename Answer>
  auto ask(std::chrono::milliseconds limit, const Request& request, const Answer& answer);

  const Address address_;
  std::timed_mutex mutex_;
  FileDescriptor connection_;  // closed when the last operation did not end as it should
};

}  // namespace accel::comm
