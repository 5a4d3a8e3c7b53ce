// SPDX-License-Identifier: Apache-2.0
#include "machine_peaks.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "measure.h"

namespace bench {
namespace {

constexpr int64_t kProductSizes[] = {512, 1024, 2048};
constexpr int kSamples = 5;
constexpr size_t kSmallest = size_t{64} << 10;

double median(std::vector<double> samples) { return measure_median(samples.data(), samples.size()); }

accel_tensor_t *make_ones(int64_t size, accel_dtype_t dtype) {
  const int64_t shape[] = {size, size};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_tensor_t *tensor = nullptr;
  CHECK(accel_tensor_full(shape, 2, 1, dtype, &cpu, &tensor));
  return tensor;
}

// Seconds of one product.
double time_product(const accel_op_t *op, accel_tensor_t *factor) {
  const accel_value_t factors[] = {accel_arg_tensor(factor), accel_arg_tensor(factor)};
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  const double begin = measure_now();
  CHECK(accel_op_call(op, factors, 2, &result, 1, &n_results));
  const double seconds = measure_now() - begin;
  accel_value_dispose(&result);
  return seconds;
}

// Passes for at least `seconds`; bytes a second.
double run_passes(Pass pass, char *data, size_t bytes, double seconds) {
  const double begin = measure_now();
  double passes = 0, elapsed = 0;
  do {
    // The C library's own loops are as wide as the processor allows.
    if (pass == Pass::kRead && std::memchr(data, 1, bytes) != nullptr) {
      std::fprintf(stderr, "memory that was cleared has another value\n");
      std::exit(EXIT_FAILURE);
    }
    if (pass == Pass::kWrite) std::memset(data, 0, bytes);
    if (pass == Pass::kCopy) std::memcpy(data, data + bytes / 2, bytes / 2);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // each pass is made
    ++passes;
    elapsed = measure_now() - begin;
  } while (elapsed < seconds);
  return passes * static_cast<double>(bytes) / elapsed;
}

size_t beyond_caches() {
  const auto positive = [](long value) { return static_cast<size_t>(std::max(value, 0L)); };
  const size_t cache = positive(sysconf(_SC_LEVEL3_CACHE_SIZE));
  const size_t physical = positive(sysconf(_SC_PHYS_PAGES)) * positive(sysconf(_SC_PAGESIZE));
  return std::max(std::min(std::max(2 * cache, size_t{256} << 20), physical / 16), kSmallest);
}

}  // namespace

std::vector<double> product_rates(accel_dtype_t dtype, double seconds) {
  const accel_op_t *op = nullptr;
  CHECK(accel_op_find("aten::mm", "", &op));
  std::vector<double> best = {0};
  for (const int64_t size : kProductSizes) {
    accel_tensor_t *const factor = make_ones(size, dtype);
    const double flops = 2 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
    const double first = time_product(op, factor);  // makes the kernel ready
    std::vector<double> rates;
    const double end = measure_now() + seconds;
    do {
      rates.push_back(flops / time_product(op, factor) / 1e9);
    } while (measure_now() < end);
    accel_tensor_release(factor);
    if (median(rates) > median(best)) best = rates;
    // Without instructions for the number format a product of the next size would take many times the time asked for.
    if (first > seconds) break;
  }
  return best;
}

Memory::Memory(size_t bytes) : data_(bytes > 0 ? std::max(bytes, kSmallest) : beyond_caches()) {}

std::vector<size_t> Memory::sizes() const {
  std::vector<size_t> sizes;
  for (size_t size = kSmallest; size < data_.size(); size *= 4) sizes.push_back(size);
  sizes.push_back(data_.size());
  return sizes;
}

std::vector<double> Memory::rates(Pass pass, size_t bytes, int threads, double seconds) {
  const size_t part = bytes / static_cast<size_t>(threads) / 128 * 128;
  std::vector<double> samples;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> rates(static_cast<size_t>(threads));
    std::atomic<int> missing = threads;
    std::vector<std::thread> workers;
    for (size_t i = 0; i < rates.size(); ++i) {
      workers.emplace_back([&, i] {
        char *const data = data_.data() + i * part;
        --missing;
        while (missing > 0) std::this_thread::yield();
        rates[i] = run_passes(pass, data, part, seconds / kSamples);
      });
    }
    for (std::thread &worker : workers) worker.join();
    double sum = 0;
    for (const double rate : rates) sum += rate;
    samples.push_back(sum / 1e9);
  }
  return samples;
}

}  // namespace bench
