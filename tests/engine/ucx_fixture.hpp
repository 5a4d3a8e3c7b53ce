// A group of ranks as threads of this process, each with its own backend from the plugin over one store.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "comm/backend_plugin.hpp"
#include "comm/collective_error.hpp"
#include "comm/plugin.hpp"

namespace accel::comm {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;

inline BackendPointer make_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   int64_t timeout_ms = 20000) {
  char error[512] = "";
  const BackendArguments arguments{store.get(), rank, size, timeout_ms, "test"};
  auto* const backend = load_plugin("ucx")(&arguments, error, sizeof(error));
  if (!backend) throw std::runtime_error(error);
  return BackendPointer::reclaim(backend);
}

// Runs `body` once a rank and rethrows the first failure.
inline void run_ranks(int size, const std::function<void(BackendPointer, int)>& body, int64_t timeout_ms = 20000) {
  const auto environment = backend_environment();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> failures(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; rank++)
    threads.emplace_back([&, rank] {
      try {
        const auto backend = make_backend(store, rank, size, timeout_ms);
        body(backend, rank);
        backend->shutdown();
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
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
