// SPDX-License-Identifier: Apache-2.0
// A group of ranks as threads of this process, each with its own backend from the plugin over one store.
#pragma once

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "comm/backend/backend_plugin.hpp"
#include "comm/backend/plugin.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;

inline BackendPointer make_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   int64_t timeout_ms = 20000, const BackendPointer& parent = {}) {
  char error[512] = "";
  BackendArguments arguments{store.get(), rank, size, timeout_ms, "test"};
  arguments.parent = parent.get();
  auto* const backend = load_plugin("ucx")(&arguments, error, sizeof(error));
  if (!backend) throw std::runtime_error(error);
  return BackendPointer::reclaim(backend);
}

// Runs `body` once a rank, each on its own thread, and rethrows the first failure.
inline void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; rank++)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

inline void run_ranks(int size, const std::function<void(BackendPointer, int)>& body, int64_t timeout_ms = 20000) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_threads(size, [&](int rank) {
    const auto backend = make_backend(store, rank, size, timeout_ms);
    body(backend, rank);
    backend->shutdown();
  });
}

// Gives an environment variable a value, and takes it back.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

enum class Between { kMemory, kMessages, kTcp };

// What lies between the ranks: a letter a rank names its host, `within` is what those of one host use.
struct Route {
  const char* hosts;
  Between within = Between::kMemory;

  int ranks() const { return static_cast<int>(std::strlen(hosts)); }
};

inline std::string name_of(const testing::TestParamInfo<Route>& info) { return info.param.hosts; }

// Calls `published` when its rank has told the others what it is.
class Announcing final : public c10d::PrefixStore {
 public:
  Announcing(c10::intrusive_ptr<c10d::Store> store, std::function<void()> published)
      : PrefixStore("group", std::move(store)), published_(std::move(published)) {}
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    PrefixStore::set(key, value);
    published_();
  }

 private:
  const std::function<void()> published_;
};

// The backends of one rank: of each group one.
inline std::vector<BackendPointer> join_groups(const Route& route, int rank, int groups,
                                               const c10::intrusive_ptr<c10d::Store>& store, std::mutex& environment) {
  std::vector<BackendPointer> backends;
  for (int group = 0; group < groups; group++) {
    // The environment is the whole process's: a rank has it for itself until it has told its host.
    std::unique_lock<std::mutex> turn(environment);
    setenv("ACCEL_HOST_ID", std::string(1, route.hosts[rank]).c_str(), 1);
    const auto published = [&turn] {
      if (turn.owns_lock()) turn.unlock();
    };
    backends.push_back(
        make_backend(c10::make_intrusive<Announcing>(
                         c10::make_intrusive<c10d::PrefixStore>(std::to_string(group), store), published),
                     rank, route.ranks(), 20000, backends.empty() ? BackendPointer() : backends[0]));
  }
  return backends;
}

inline void run_ranks(const Route& route, int groups,
                      const std::function<void(const std::vector<BackendPointer>&, int)>& body) {
  const Variable host("ACCEL_HOST_ID", "");
  const Variable segment("ACCEL_SHARED_MEMORY", route.within == Between::kMemory ? "1" : "0");
  std::optional<Variable> transports;
  if (route.within == Between::kTcp) transports.emplace("UCX_TLS", "tcp,self");
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  run_threads(route.ranks(), [&](int rank) {
    const auto backends = join_groups(route, rank, groups, store, mutex);
    body(backends, rank);
    for (const auto& backend : backends) backend->shutdown();
  });
}

inline void run_ranks(const Route& route, const std::function<void(BackendPointer, int)>& body) {
  run_ranks(route, 1, [&](const std::vector<BackendPointer>& backends, int rank) { body(backends[0], rank); });
}

template <typename Options>
Options at_once() {
  Options options;
  options.asyncOp = false;
  return options;
}

template <typename Call>
CollectiveError expect_error(const Call& call) {
  try {
    call();
  } catch (const CollectiveError& error) {
    return error;
  }
  throw std::runtime_error("the call was expected to fail");
}

}  // namespace accel::comm
