#include "kernels/measured_tables.hpp"

#include <ATen/Parallel.h>
#include <time.h>
#include <torch/csrc/api/include/torch/version.h>

#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/product_cache.hpp"

namespace accel::kernels {
namespace {

// How much of the time since it was made the process computed: near the number of its threads when nobody else did.
class ComputingTime {
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

const MeasuredTables::Measured* find_of(const MeasuredTables::Measured* measured, int threads) {
  while (measured != nullptr && measured->threads != threads) measured = measured->next;
  return measured;
}

}  // namespace

MeasuredTables::Measured MeasuredTables::measure(int threads) const {
  const std::optional<ProductCache> cache = ProductCache::find(TORCH_VERSION, threads, kind_);
  if (cache) {
    if (const std::optional<ProductTable> kept = cache->load())
      return {threads, *kept, text("measured earlier, '", cache->path(), "'"), nullptr};
  }
  const ComputingTime time;
  const ProductTable table = measure_();
  const bool is_disturbed = time.share() < kUndisturbed * threads;
  if (is_disturbed)
    log(LogLevel::kInfo, "the measurement of products is not kept: other programs used the processors meanwhile");
  else if (cache)
    cache->store(table);
  return {threads, table, "measured by this process", nullptr};
}

const MeasuredTables::Measured* MeasuredTables::find() const {
  return find_of(latest_.load(std::memory_order_acquire), at::get_num_threads());
}

const ProductTable& MeasuredTables::table() {
  if (const Measured* const known = find()) return known->table;
  const std::lock_guard lock(mutex_);
  const int threads = at::get_num_threads();
  if (const Measured* const known = find_of(latest_.load(std::memory_order_acquire), threads)) return known->table;
  Measured measured = measure(threads);
  measured.next = latest_.load(std::memory_order_relaxed);
  const Measured* const kept = std::make_unique<Measured>(std::move(measured)).release();
  latest_.store(kept, std::memory_order_release);
  return kept->table;
}

}  // namespace accel::kernels
