// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: each has its own communicator, over the real backend and an in-memory store.
#pragma once

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/backend/backend_communicator.hpp"
#include "comm/backend/plugin.hpp"

namespace accel::tests {

// Runs `body` on every rank; the first rank's exception is thrown again here.
inline void run_ranks(int size, const std::function<void(const std::shared_ptr<comm::Communicator>&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60),
                      const std::string& backends = "ucx") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> failures(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; rank++)
    ranks.emplace_back([&, rank] {
      try {
        const auto communicator =
            size == 1 ? std::make_shared<comm::BackendCommunicator>()
                      : std::make_shared<comm::BackendCommunicator>(store, rank, size, timeout, backends);
        body(communicator);
        communicator->barrier();
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// What each rank's failing call said.
inline std::vector<std::string> messages_of(int size, std::chrono::milliseconds timeout,
                                            const std::function<void(comm::Communicator&)>& call) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> messages(size);
  std::atomic<int> done{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; rank++)
    ranks.emplace_back([&, rank] {
      comm::BackendCommunicator communicator(store, rank, size, timeout, "ucx");
      try {
        call(communicator);
      } catch (const std::exception& error) {
        messages[rank] = error.what();
      }
      for (done++; done < size;) std::this_thread::yield();  // who leaves is a lost peer to the others
    });
  for (std::thread& rank : ranks) rank.join();
  return messages;
}

}  // namespace accel::tests
