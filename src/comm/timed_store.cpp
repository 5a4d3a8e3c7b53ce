#include "comm/timed_store.hpp"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "base/background_thread.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/interruption.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

// The server itself ends a wait; its answer needs a moment to come back, a long one when all cores are busy.
constexpr auto kWayBack = Milliseconds(1000);
constexpr auto kLongestSleep = Milliseconds(50);  // until an interruption is seen

}  // namespace

// Runs one operation after the other. Its thread may be in one that does not end, so it shares what it uses with the
// store's owner, who may leave first.
class TimedStore::Worker {
 public:
  using Job = std::function<void(c10::intrusive_ptr<c10d::Store>& store)>;

  // Whether it took the job: it does not as long as it is busy.
  bool start(Job job, Milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return !job_; })) return false;
    job_ = std::move(job);
    changed_.notify_all();
    return true;
  }

  // Returns whether the thread is idle, so that it ends at once.
  bool stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    return !job_;
  }

  void run() {
    c10::intrusive_ptr<c10d::Store> store;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || job_; });
      if (!job_) return;
      lock.unlock();
      job_(store);
      lock.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Job job_;
  bool stop_ = false;
};

template <typename Operation>
auto TimedStore::in_time(Milliseconds limit, Operation operation) {
  using Store = c10::intrusive_ptr<c10d::Store>;
  using Result = decltype(operation(std::declval<Store&>()));
  const auto task = std::make_shared<std::packaged_task<Result(Store&)>>(std::move(operation));
  auto answer = task->get_future();
  const Deadline deadline(limit);
  const InterruptionFlag interruption;
  const auto ready = [&] {
    return answer.wait_for(std::min(deadline.left(), kLongestSleep)) == std::future_status::ready;
  };
  bool answered = false;
  if (worker_->start([task](Store& store) { (*task)(store); }, limit))
    while (!(answered = ready()) && !deadline.passed() && !interruption.raised()) {
    }
  require(answered || !interruption.raised(), Status::kCancelled,
          "the program was interrupted while it waited for rank 0");
  require(answered, Status::kTimeout, "the store of rank 0 did not answer within ", limit.count(),
          " ms; see whether rank 0 runs and its host can be reached");
  return answer.get();
}

TimedStore::TimedStore(Connect connect, Milliseconds timeout) : worker_(std::make_shared<Worker>()) {
  timeout_ = timeout;
  thread_ = background_thread("accel-store", [worker = worker_] { worker->run(); });
  try {
    in_time(timeout, [connect = std::move(connect)](auto& store) { store = connect(); });
  } catch (...) {
    leave();
    throw;
  }
}

TimedStore::~TimedStore() { leave(); }

void TimedStore::leave() {
  if (worker_->stop())
    thread_.join();
  else
    thread_.detach();
}

c10::intrusive_ptr<c10d::Store> TimedStore::clone() {
  const auto other = in_time(timeout_, [](auto& store) { return store->clone(); });
  return c10::make_intrusive<TimedStore>([other] { return other; }, timeout_);
}

void TimedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  in_time(timeout_, [=](auto& store) { store->set(key, value); });
}

std::vector<uint8_t> TimedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                            const std::vector<uint8_t>& desired) {
  return in_time(timeout_, [=](auto& store) { return store->compareSet(key, expected, desired); });
}

std::vector<uint8_t> TimedStore::get(const std::string& key) {
  return in_time(timeout_ + kWayBack, [=](auto& store) { return store->get(key); });
}

std::vector<std::vector<uint8_t>> TimedStore::multiGet(const std::vector<std::string>& keys) {
  return in_time(timeout_ + kWayBack, [=](auto& store) { return store->multiGet(keys); });
}

int64_t TimedStore::add(const std::string& key, int64_t value) {
  return in_time(timeout_, [=](auto& store) { return store->add(key, value); });
}

void TimedStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  in_time(timeout_, [=](auto& store) { store->append(key, value); });
}

void TimedStore::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) {
  in_time(timeout_, [=](auto& store) { store->multiSet(keys, values); });
}

bool TimedStore::deleteKey(const std::string& key) {
  return in_time(timeout_, [=](auto& store) { return store->deleteKey(key); });
}

bool TimedStore::check(const std::vector<std::string>& keys) {
  return in_time(timeout_, [=](auto& store) { return store->check(keys); });
}

int64_t TimedStore::getNumKeys() {
  return in_time(timeout_, [](auto& store) { return store->getNumKeys(); });
}

void TimedStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void TimedStore::wait(const std::vector<std::string>& keys, const Milliseconds& timeout) {
  in_time(timeout + kWayBack, [=](auto& store) { store->wait(keys, timeout); });
}

void TimedStore::setTimeout(const Milliseconds& timeout) {
  timeout_ = timeout;
  in_time(timeout, [=](auto& store) { store->setTimeout(timeout); });
}

}  // namespace accel::comm
