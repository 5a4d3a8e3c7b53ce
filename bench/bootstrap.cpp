// SPDX-License-Identifier: Apache-2.0
// Workload bootstrap: how ranks find each other, with more of them than a machine holds. The store's server and clients
// and the steps of each rank are the real ones, from its first connection until it knows the addresses of all others.
// Left out is what a rank does by itself: loading LibTorch, opening UCX.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/record/collected_values.hpp"
#include "comm/rendezvous/job_start.hpp"
#include "comm/rendezvous/store_client.hpp"
#include "comm/rendezvous/store_server.hpp"

namespace {

using accel::Deadline;
using accel::comm::Address;
using accel::comm::JobStart;
using accel::comm::StoreClient;
using accel::comm::StoreServer;
using Bytes = std::vector<uint8_t>;

constexpr auto kLimit = std::chrono::seconds(300);
constexpr int kProcesses = 2;         // that hold the ranks
constexpr size_t kRecordBytes = 417;  // of UCX's address and what the plugin says beside it, with TCP on two interfaces

struct Costs {
  int64_t requests = 0, bytes = 0;
};

// Counts requests to the server, and the bytes of keys and values in both directions.
class CountingStore final : public c10d::Store {
 public:
  CountingStore(c10::intrusive_ptr<c10d::Store> store, Costs *costs)
      : Store(kLimit), store_(std::move(store)), costs_(costs) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<CountingStore>(store_, costs_); }
  void set(const std::string &key, const Bytes &value) override {
    count(1, key.size() + value.size());
    store_->set(key, value);
  }
  Bytes compareSet(const std::string &key, const Bytes &expected, const Bytes &desired) override {
    Bytes present = store_->compareSet(key, expected, desired);
    count(1, key.size() + expected.size() + desired.size() + present.size());
    return present;
  }
  Bytes get(const std::string &key) override {
    Bytes value = store_->get(key);
    count(2, 2 * key.size() + value.size());  // it waits for the key first
    return value;
  }
  std::vector<Bytes> multiGet(const std::vector<std::string> &keys) override {
    auto values = store_->multiGet(keys);
    for (const std::string &key : keys) count(0, 2 * key.size());
    for (const Bytes &value : values) count(0, value.size());
    count(2, 0);
    return values;
  }
  bool hasExtendedApi() const override { return true; }
  int64_t add(const std::string &key, int64_t value) override {
    count(1, key.size() + 2 * sizeof value);
    return store_->add(key, value);
  }
  bool deleteKey(const std::string &key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string> &keys) override {
    for (const std::string &key : keys) count(0, key.size());
    count(1, 0);
    return store_->check(keys);
  }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string> &keys) override { wait(keys, kLimit); }
  void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override {
    for (const std::string &key : keys) count(0, key.size());
    count(1, 0);
    store_->wait(keys, timeout);
  }

 private:
  void count(int64_t requests, size_t bytes) {
    costs_->requests += requests;
    costs_->bytes += static_cast<int64_t>(bytes);
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  Costs *const costs_;
};

// A rank, in the steps of comm/rendezvous/rendezvous.cpp and of the UCX plugin. All ranks of a process take each step
// in turn.
class Rank {
 public:
  Rank(const Address &server, int rank, int size, Costs *costs) : rank_(rank), size_(size) {
    accel::comm::connect_to(server, kLimit);  // whether rank 0 is there
    const auto client = c10::make_intrusive<StoreClient>(server, kLimit);
    costs->requests += 3;  // what a connection begins with
    store_ = c10::make_intrusive<CountingStore>(client, costs);
    start_ = std::make_unique<JobStart>(store_, rank, size, Deadline(kLimit), JobStart::Server());
    if (rank == 0) {
      store_->set("token", Bytes(32, 'x'));
      store_->set("size", Bytes(1, '2'));
    }
  }
  void arrive(const Address &own) {
    if (rank_ != 0) {
      store_->get("token");
      store_->get("size");
    }
    store_->add("present/" + std::to_string(rank_), 1);
    start_->arrive(own);
  }
  void learn_arrivals() { start_->wait_for_all(); }
  void publish() {
    store_->set(key(rank_), Bytes(kRecordBytes, 'x'));
    if (store_->add("published", 1) < size_) return;
    std::vector<std::string> keys;
    for (int peer = 0; peer < size_; peer++) keys.push_back(key(peer));
    store_->set("all_published", accel::comm::collect_values(*store_, keys));
  }
  void learn_addresses() {
    store_->wait({"all_published"});
    store_->get("all_published");
    if (store_->add("connected", 1) == size_) store_->set("all_connected", Bytes(1, '1'));
  }
  void finish() {
    store_->wait({"all_connected"});
    store_->get("all_connected");
    start_->end();
  }

 private:
  static std::string key(int rank) { return "accel/ucx/job/" + std::to_string(rank); }

  const int rank_, size_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<JobStart> start_;
};

// Ranks first, first + kProcesses, ...
Costs start_ranks(const Address &server, const Address &own, int first, int size) {
  Costs costs;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = first; rank < size; rank += kProcesses)
    ranks.push_back(std::make_unique<Rank>(server, rank, size, &costs));
  for (const auto &rank : ranks) rank->arrive(own);
  for (const auto &rank : ranks) rank->learn_arrivals();
  for (const auto &rank : ranks) rank->publish();
  for (const auto &rank : ranks) rank->learn_addresses();
  for (const auto &rank : ranks) rank->finish();
  return costs;
}

// In a process of its own, before this one has threads. The costs come through the pipe.
pid_t fork_ranks(const Address &server, const Address &own, int first, int size, int result) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    const Costs costs = start_ranks(server, own, first, size);
    _exit(write(result, &costs, sizeof costs) == sizeof costs ? 0 : 1);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "bootstrap: %s\n", error.what());
    _exit(1);
  }
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int measure(int size) {
  int result[2];
  accel::FileDescriptor listener = accel::comm::listen_on("127.0.0.1", 0);
  // The socket by which others would see that a rank has ended.
  const accel::FileDescriptor watched = accel::comm::listen_on("127.0.0.1", 0);
  const Address server{"127.0.0.1", accel::comm::port_of(listener)}, own{"127.0.0.1", accel::comm::port_of(watched)};
  if (pipe(result) != 0) return 1;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (int first = 0; first < std::min(kProcesses, size); first++)
    children.push_back(fork_ranks(server, own, first, size, result[1]));
  const StoreServer store(std::move(listener));
  Costs all;
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    Costs costs;
    failed = failed || status != 0 || read(result[0], &costs, sizeof costs) != sizeof costs;
    all.requests += costs.requests;
    all.bytes += costs.bytes;
  }
  const double seconds = seconds_since(begin);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  if (failed) return 1;
  std::printf(
      "{\"bench\": \"bootstrap\", \"params\": {\"ranks\": %d}, \"value\": %.4g, \"unit\": \"s\", \"higher_is_better\": "
      "false, "
      "\"requests_per_rank\": %.3g, "
      "\"megabytes\": %.4g, \"server_mb\": %.4g, \"server_cpu_s\": %.3g}\n",
      size, seconds, static_cast<double>(all.requests) / size, static_cast<double>(all.bytes) / 1e6,
      static_cast<double>(used.ru_maxrss) / 1024,
      static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
          static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
  return 0;
}

}  // namespace

int main(int count, char **arguments) {
  int status = 0;
  for (int i = 1; i < count; i++) status |= measure(std::atoi(arguments[i]));
  return status;
}
