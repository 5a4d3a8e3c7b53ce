// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/autotuner.hpp"

#include <ATen/Parallel.h>
#include <time.h>
#include <torch/csrc/api/include/torch/version.h>

#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/matmul/autotune_cache.hpp"

namespace accel::kernels {
namespace {

// Processor time over wall time since construction: near the number of threads when no other program used the
// processors.
class ProcessorTime {
 public:
  double share() const { return (seconds(CLOCK_PROCESS_CPUTIME_ID) - computed_) / (seconds(CLOCK_MONOTONIC) - begin_); }

 private:
  static double seconds(clockid_t clock) {
    timespec time = {};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double begin_ = seconds(CLOCK_MONOTONIC);
  double computed_ = seconds(CLOCK_PROCESS_CPUTIME_ID);
};

constexpr double kUndisturbed = 0.9;

const Autotuner::Result* find_of(const Autotuner::Result* result, int threads) {
  while (result != nullptr && result->threads != threads) result = result->next;
  return result;
}

}  // namespace

Autotuner::Result Autotuner::tune(int threads) const {
  const std::optional<AutotuneCache> cache = AutotuneCache::find(TORCH_VERSION, threads, kind_);
  if (cache) {
    if (const std::optional<AutotuneTable> kept = cache->load()) {
      log(LogLevel::kInfo, "matmuls are chosen as measured earlier, '", cache->path(), "'");
      return {threads, *kept, text("measured earlier, '", cache->path(), "'"), nullptr};
    }
  }
  log(LogLevel::kInfo, "matmuls are measured, to choose the fastest kernels for ", threads, " threads");
  const ProcessorTime time;
  const AutotuneTable table = tune_();
  const bool is_disturbed = time.share() < kUndisturbed * threads;
  if (is_disturbed)
    log(LogLevel::kInfo, "the measurement of matmuls counts for an hour: other programs used the processors meanwhile");
  if (cache) cache->store(table, is_disturbed);
  return {threads, table, "measured by this process", nullptr};
}

const Autotuner::Result* Autotuner::find() const {
  return find_of(latest_.load(std::memory_order_acquire), at::get_num_threads());
}

const AutotuneTable& Autotuner::table() {
  if (const Result* const known = find()) return known->table;
  const std::lock_guard lock(mutex_);
  const int threads = at::get_num_threads();
  if (const Result* const known = find_of(latest_.load(std::memory_order_acquire), threads)) return known->table;
  Result result = tune(threads);
  result.next = latest_.load(std::memory_order_relaxed);
  const Result* const kept = std::make_unique<Result>(std::move(result)).release();
  latest_.store(kept, std::memory_order_release);
  return kept->table;
}

}  // namespace accel::kernels
