// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/background_writer.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "os/background_thread.hpp"

namespace accel::checkpoint {
namespace {

// A thread of this priority takes 4 % of the processor time that the training wants.
constexpr int kPriority = 14;

// The writers of the process. They end before the library's own data and LibTorch's, which their threads use.
struct Writers {
  std::mutex mutex;
  std::unordered_set<const BackgroundWriter*> all;
};

Writers& writers() {
  static Writers* const writers = std::make_unique<Writers>().release();  // lives until the process has ended
  return *writers;
}

void wait_for_all() {
  Writers& known = writers();
  const std::lock_guard<std::mutex> lock(known.mutex);
  for (const BackgroundWriter* writer : known.all)
    if (writer->process() == ::getpid()) writer->wait(std::nullopt);  // after fork() there are no threads
}

}  // namespace

BackgroundWriter::BackgroundWriter() {
  Writers& known = writers();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.all.insert(this);
}

BackgroundWriter::~BackgroundWriter() {
  {
    Writers& known = writers();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.all.erase(this);
  }
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::start(std::string what, std::function<void()> work) {
  require(!is_busy(), Status::kInternal, "the background writer has work already");
  if (thread_.joinable()) thread_.join();
  // Again for each start: what the process has made since the last one, such as a device's memory, is gone before the
  // functions that were registered earlier are called.
  require(std::atexit(wait_for_all) == 0, Status::kOutOfMemory, "no function can be added to the end of the process");
  what_ = std::move(what);
  busy_ = true;
  process_ = ::getpid();
  try {
    thread_ = background_thread("accel_saves", [this, work = std::move(work)] { run(work); });
  } catch (...) {
    busy_ = false;
    throw;
  }
}

void BackgroundWriter::run(const std::function<void()>& work) {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kPriority);
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  error_ = std::move(error);
  busy_ = false;
  ended_.notify_all();
}

bool BackgroundWriter::is_busy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return busy_;
}

bool BackgroundWriter::wait(std::optional<std::chrono::milliseconds> timeout) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_ended = [this] { return !busy_; };
  if (timeout) return ended_.wait_for(lock, *timeout, has_ended);
  ended_.wait(lock, has_ended);
  return true;
}

void BackgroundWriter::throw_error() {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (const Error& cause) {
    fail(cause.status(), what_, " failed: ", cause.message());
  }
}

}  // namespace accel::checkpoint
