// SPDX-License-Identifier: Apache-2.0
// Reads the batches of a source, on threads ahead of time where that pays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "data/batches/batch_source.hpp"
#include "data/worker_pool.hpp"

namespace accel::data {

struct PrefetchOptions {
  int64_t prefetch = 2;     // as in LoaderOptions
  int64_t num_workers = 0;  // as in LoaderOptions
  // Whether reading runs the application's code: threads do that only where it asked for workers.
  bool calls_back = false;
};

class Prefetcher {
 public:
  // Reads one batch of the source; on any of the threads.
  using Read = std::function<std::optional<Batch>(BatchSource& source, int64_t index)>;

  Prefetcher(std::unique_ptr<BatchSource> source, Read read, const PrefetchOptions& options);

  // The next batch; nothing at the end. A batch that failed is read again by the next call.
  std::optional<Batch> next();

  // Waits for the batches that are being read; no others are, and next() is not called any more.
  void stop_workers() { workers_->stop(); }

 private:
  std::optional<Batch> take();
  void start_workers();

  std::unique_ptr<BatchSource> source_;
  Read read_;
  PrefetchOptions options_;
  bool begun_ = false;
  int64_t taken_ = 0;                    // batches that the source has returned
  int64_t slow_reads_ = 0;               // in a row, on the loop's thread
  std::unique_ptr<WorkerPool> workers_;  // ends before the source that it reads
};

}  // namespace accel::data
