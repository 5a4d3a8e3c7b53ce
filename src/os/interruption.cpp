// SPDX-License-Identifier: Apache-2.0
#include "os/interruption.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace accel {
namespace {

struct Waits {
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<Interruptible*> open;
};

// Never destroyed: threads may wait while the process exits.
Waits& waits() {
  static Waits* const instance = std::make_unique<Waits>().release();
  return *instance;
}

}  // namespace

Interruptible::Interruptible(std::function<void()> end) : end_(std::move(end)) {
  const std::lock_guard<std::mutex> lock(waits().mutex);
  waits().open.push_back(this);
}

Interruptible::~Interruptible() {
  std::unique_lock<std::mutex> lock(waits().mutex);
  waits().ended.wait(lock, [this] { return !ending_; });
  auto& open = waits().open;
  open.erase(std::find(open.begin(), open.end(), this));
}

void interrupt() {
  std::unique_lock<std::mutex> lock(waits().mutex);
  std::vector<Interruptible*> ending;
  for (auto wait = waits().open.rbegin(); wait != waits().open.rend(); ++wait)
    if (!std::exchange((*wait)->ending_, true)) ending.push_back(*wait);
  for (Interruptible* wait : ending) {
    lock.unlock();
    wait->end_();  // may wait itself, so that others come and go meanwhile
    lock.lock();
    wait->ending_ = false;
    waits().ended.notify_all();
  }
}

}  // namespace accel
