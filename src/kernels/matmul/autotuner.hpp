// SPDX-License-Identifier: Apache-2.0
// Autotuner: measures an autotune table at its first use, or reads it from the cache; one table per number of threads.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/matmul/autotune_table.hpp"

namespace accel::kernels {

class Autotuner {
 public:
  using Measurement = AutotuneTable (*)();

  // `kind` is a part of the cache file's name; empty for float32.
  Autotuner(std::string kind, Measurement tune) : kind_(std::move(kind)), tune_(tune) {}

  // For the current number of threads; the first call measures it or reads the cache.
  const AutotuneTable& table();

  struct Result {
    int threads;
    AutotuneTable table;
    std::string source;  // where the table comes from, for a person
    const Result* next;  // for another number of threads
  };
  // For the current number of threads; null before the first table().
  const Result* find() const;

 private:
  Result tune(int threads) const;

  const std::string kind_;
  const Measurement tune_;
  std::mutex mutex_;                            // held while tuning
  std::atomic<const Result*> latest_{nullptr};  // never deleted: a matmul may still read it
};

}  // namespace accel::kernels
