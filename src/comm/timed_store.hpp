// A store whose operations all end in time. LibTorch's client waits for the server's answer without a limit, and a
// server that is stopped, or behind a broken link, gives none.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace accel::comm {

// An operation without an answer within the store's timeout is an Error(Status::kTimeout), and so is each later one
// until the answer, which nobody wants any more, has come.
class TimedStore final : public c10d::Store {
 public:
  using Connect = std::function<c10::intrusive_ptr<c10d::Store>()>;

  // Connecting counts as the first operation.
  TimedStore(Connect connect, std::chrono::milliseconds timeout);
  ~TimedStore() override;

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
  void setTimeout(const std::chrono::milliseconds& timeout) override;

 private:
  class Worker;

  void leave();

  template <typename Operation>
  auto in_time(std::chrono::milliseconds limit, Operation operation);

  std::shared_ptr<Worker> worker_;
  std::thread thread_;
};

}  // namespace accel::comm
