// SPDX-License-Identifier: Apache-2.0
// A pool of worker threads that read numbered batches ahead, which are taken in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batches/batch_source.hpp"
#include "kernels/compute_policy.hpp"

namespace accel::data {

class WorkerPool {
 public:
  using Read = std::function<std::optional<Batch>(int64_t index)>;

  // Reads the batches from `begin` on. At most `depth` are being read or wait to be taken, which bounds the memory;
  // `read` runs on as many threads at once as there are workers.
  WorkerPool(Read read, int64_t begin, int64_t workers, int64_t depth);
  ~WorkerPool();  // stops it
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Waits for the next batch. Nothing, and what reading threw, take the place of their batch; no batches follow them.
  std::optional<Batch> take();

  // Waits for the batches that are being read; no others are, and none is taken any more.
  void stop();

 private:
  struct Slot {
    bool ready = false;
    std::optional<Batch> batch;
    std::exception_ptr failure;
  };

  void run();
  Slot& slot(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }

  Read read_;
  kernels::ComputePolicy policy_;  // of who made the pool
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<Slot> slots_;
  int64_t next_;                 // to be read
  int64_t taken_;                // the next to be taken
  std::optional<int64_t> last_;  // nothing is read after it
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace accel::data
