#include "comm/ucx/progress/group_progress.hpp"

#include <ATen/core/grad_mode.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/algorithms/run_collective.hpp"
#include "comm/ucx/host/status_page.hpp"

namespace accel::comm::ucx {
namespace {

using Clock = std::chrono::steady_clock;

void copy_result(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  to.copy_(from);
}

}  // namespace

GroupProgress::GroupProgress(ProgressEngine::Membership membership, uint32_t number,
                             std::unique_ptr<Transport> transport, Peers peers, std::unique_ptr<HostSegment> segment,
                             const char* (*current_call)())
    : engine_(membership->shared_from_this()),
      membership_(std::move(membership)),
      number_(number),
      current_call_(current_call),
      transport_(std::move(transport)),
      peers_(std::move(peers)),
      memory_(peers_.rank()),
      segment_(std::move(segment)),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  ended_peers_.reserve(static_cast<size_t>(size()));
  bool watches = events_.is_open();
  for (int peer = 0; peer < size(); peer++) {
    if (peers_.process_descriptor(peer) < 0) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = peer;
    watches = watches && epoll_ctl(events_.number(), EPOLL_CTL_ADD, peers_.process_descriptor(peer), &event) == 0;
  }
  if (!watches)
    throw CollectiveError(CollectiveFailure::kBackend, rank(),
                          text("rank ", rank(), " cannot wait for events: ", std::strerror(errno),
                               "; see the limit of open files (ulimit -n)"));
}

GroupProgress::~GroupProgress() { shutdown(); }

void GroupProgress::submit(PostedTask task) {
  if (current_call_ != nullptr) task.function = current_call_();
  std::unique_lock<std::mutex> lock(engine_->mutex());
  if (failure_) throw_failure(*failure_);
  task.work->name_call(task.function, sequence_);
  for (auto& part : task.task.parts) part.header.sequence = sequence_++;
  if (task.task.is_async || engine_->is_claimed() || !tasks_.empty() || running_ != nullptr) {
    tasks_.push_back(std::move(task));
    tasks_waiting_.store(true);
    lock.unlock();
    return engine_->wake_up();
  }
  engine_->claim();
  runs_here_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    run_parts(task);
  } catch (const std::exception&) {
    error = fail_task(task);
  }
  runs_here_ = false;
  end_task(task, std::move(error));
  engine_->release();
}

void GroupProgress::submit(PointToPoint call) {
  std::unique_lock<std::mutex> lock(engine_->mutex());
  if (failure_) throw_failure(*failure_);
  if (engine_->is_claimed()) {
    submissions_.push_back(std::move(call));
    submissions_waiting_.store(true);
    lock.unlock();
    return engine_->wake_up();
  }
  engine_->claim();
  lock.unlock();
  engine_->notify();
  try {
    post(std::move(call));
  } catch (const std::exception&) {
    fail_group_for_exception();
    fail_open_calls();
  }
  engine_->release();
}

void GroupProgress::progress_until_complete(UcxWork& work) {
  std::unique_lock<std::mutex> lock(engine_->mutex());
  if (work.isCompleted()) return;
  if (engine_->is_claimed()) {
    if (engine_->is_claimed_here())
      throw CollectiveError(CollectiveFailure::kInvalid, rank(),
                            text("waiting for ", work.title(),
                                 " inside a completion callback would wait for itself; "
                                 "chain a callback on its future"));
    return;
  }
  if (!has_work()) return;
  engine_->claim();
  lock.unlock();
  engine_->progress_until_idle([&work] { return work.isCompleted(); });
  engine_->release();
}

void GroupProgress::fail(CollectiveFailure failure, const std::string& reason) {
  fail_group({failure, rank(), reason});
  engine_->wake_up();
}

void GroupProgress::shutdown() {
  {
    const std::lock_guard<std::mutex> lock(engine_->mutex());
    if (stop_) return;
    stop_ = true;
  }
  bool open = false;
  engine_->run([&] {
    const std::lock_guard<std::mutex> lock(engine_->mutex());
    open = runs_here_ || has_work();
  });
  if (open) abort(end_of_group(" while calls were open").message);
  for (bool left = false; !left; std::this_thread::yield()) engine_->run([&] { left = leave(); });
  engine_->remove(*this);
  membership_.reset();
}

// False while a call of the group runs on the stack of its caller; it ends soon, because the group has failed.
bool GroupProgress::leave() {
  if (runs_here_) return false;
  bool clean = false;
  {
    const std::lock_guard<std::mutex> lock(engine_->mutex());
    clean = !failure_;
    if (clean) failure_ = end_of_group("");
    failed_.store(true);
  }
  while (running_ != nullptr) resume_running();
  fail_open_calls();
  if (StatusPage* const page = peers_.status_page(rank()); clean && page != nullptr) page->leave();
  if (!clean) engine_->keep(std::move(memory_of_calls_));
  memory_of_calls_.clear();
  segment_.reset();
  return true;
}

GroupWait GroupProgress::current_wait() const {
  GroupWait wait;
  if (running_ != nullptr) wait.session = running_->session;
  wait.for_messages = !posted_.empty();
  wait.is_over = running_ != nullptr && running_->interruption != nullptr;
  return wait;
}

bool GroupProgress::has_work() const { return !tasks_.empty() || !submissions_.empty() || is_busy(); }

std::optional<PostedTask> GroupProgress::next_task() {
  const std::lock_guard<std::mutex> lock(engine_->mutex());
  if (failure_) throw_failure(*failure_);
  if (tasks_.empty()) return std::nullopt;
  std::optional<PostedTask> task(std::move(tasks_.front()));
  tasks_.pop_front();
  tasks_waiting_.store(!tasks_.empty());
  return task;
}

std::optional<PointToPoint> GroupProgress::next_submission() {
  const std::lock_guard<std::mutex> lock(engine_->mutex());
  if (failure_) throw_failure(*failure_);
  submissions_waiting_.store(!submissions_.empty());
  if (submissions_.empty()) return std::nullopt;
  std::optional<PointToPoint> call(std::move(submissions_.front()));
  submissions_.pop_front();
  return call;
}

bool GroupProgress::progress() noexcept {
  bool moved = false;
  try {
    if (failed_.load(std::memory_order_relaxed) && !runs_here_) end_failed_calls();
    while (submissions_waiting_.load(std::memory_order_relaxed)) {
      auto call = next_submission();
      if (!call) break;
      post(std::move(*call));
      moved = true;
    }
    if (!posted_.empty()) moved = finish_posted() || moved;
    if (runs_here_) return moved;
    if (running_ == nullptr && tasks_waiting_.load(std::memory_order_relaxed)) start_next_task();
    if (running_ != nullptr) moved = resume_running() || moved;
  } catch (const std::exception&) {
    fail_group_for_exception();
    fail_open_calls();
  }
  return moved;
}

void GroupProgress::end_failed_calls() {
  while (running_ != nullptr) resume_running();
  {
    const std::lock_guard<std::mutex> lock(engine_->mutex());
    if (!has_work()) return;
  }
  fail_open_calls();
}

void GroupProgress::start_next_task() {
  try {
    if (spare_ == nullptr) spare_ = std::make_unique<Running>(*this);
    auto task = next_task();
    if (!task) return;
    running_ = std::move(spare_);
    running_->task = std::move(*task);
  } catch (const std::bad_alloc&) {  // no stack: the task fails
    if (auto task = next_task()) end_task(*task, fail_task(*task));
  }
}

GroupProgress::Running::Running(GroupProgress& group)
    : task{Task(c10d::OpType::COALESCED), {}, {}}, fiber([this, &group] {
        try {
          group.run_parts(task);
        } catch (const std::exception&) {
          error = std::current_exception();
        }
      }) {}

void GroupProgress::wait(Session& session) {
  if (running_ != nullptr)
    suspend(session);
  else
    engine_->progress_until([&session] { return session.has_arrived(); }, &session);
}

void GroupProgress::suspend(Session& session) {
  Running& running = *running_;
  running.session = &session;
  running.fiber.suspend();
  running.session = nullptr;
  if (running.interruption) std::rethrow_exception(std::exchange(running.interruption, nullptr));
}

// Whether it was resumed.
bool GroupProgress::resume_running() {
  Running& running = *running_;
  if (running.session != nullptr && !running.interruption) {
    try {
      throw_if_failed();
      if (!running.session->has_arrived()) return false;
    } catch (const std::exception&) {
      running.interruption = std::current_exception();
    }
  }
  running.fiber.resume();
  if (!running.fiber.has_ended()) return true;
  PostedTask task = std::move(running.task);
  std::exception_ptr error = std::exchange(running.error, nullptr);
  spare_ = std::move(running_);
  if (error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception&) {
      error = fail_task(task);
    }
  }
  end_task(task, std::move(error));
  return true;
}

void GroupProgress::run_parts(PostedTask& task) {
  const SessionLinks links{*transport_, segment_.get(), memory_, peers_, engine_->spin(), *this};
  StatusPage* const page = peers_.status_page(rank());
  for (const auto& part : task.task.parts) {
    if (page != nullptr) page->begin(task.function, traits_of(part.header.kind).name, part.header.sequence);
    task.work->set_sequence(part.header.sequence);
    Session session(links, memory_of_calls_.front().buffers, part.header, task.function, task.task.timeout);
    run(part, session);
  }
}

// Not on a fiber: callbacks may need a large stack.
void GroupProgress::end_task(PostedTask& task, std::exception_ptr error) noexcept {
  if (!error) {
    try {
      for (const auto& [to, from] : task.task.copies) copy_result(to, from);
      if (StatusPage* const page = peers_.status_page(rank())) page->end();
    } catch (const std::exception&) {
      error = fail_task(task);
    }
  }
  // Who waits may count on the memory: it frees it, and takes some for the next call.
  task.task.held.clear();
  task.task.copies.clear();
  task.work->complete(std::move(error), task.thread_state);
}

void GroupProgress::post(PointToPoint call) {
  const auto bytes = call.memory.nbytes();
  try {
    if (posted_.size() == posted_.capacity()) posted_.reserve(2 * posted_.size() + 1);  // before UCX has the message
    call.message =
        call.receives
            ? transport_->receive(call.peer, call.memory.data_ptr(), bytes, Channel::kPointToPoint, call.tag)
            : transport_->send(call.peer, call.memory.const_data_ptr(), bytes, Channel::kPointToPoint, call.tag);
  } catch (const CollectiveError& error) {
    call.work->complete(std::current_exception(), call.thread_state);
    if (!group_survives(error.failure())) throw;
    return;
  } catch (const std::exception&) {
    call.work->complete(std::current_exception(), call.thread_state);
    throw;
  }
  posted_.push_back(std::move(call));
  finish_posted();
}

bool GroupProgress::finish_posted() {
  bool moved = false;
  for (size_t i = 0; i < posted_.size();) {
    std::exception_ptr error;
    bool broken = false;
    try {
      if (!posted_[i].message.done()) {
        i++;
        continue;
      }
    } catch (const CollectiveError& failure) {
      error = std::current_exception();
      broken = !group_survives(failure.failure());
    }
    PointToPoint call = std::move(posted_[i]);
    posted_[i] = std::move(posted_.back());
    posted_.pop_back();
    complete(call, error);
    moved = true;
    if (broken) std::rethrow_exception(error);
  }
  return moved;
}

void GroupProgress::complete(PointToPoint& call, std::exception_ptr error) noexcept {
  try {
    if (!error && call.receives) take_received(call);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  call.work->complete(std::move(error), call.thread_state);
}

void GroupProgress::take_received(PointToPoint& call) {
  const size_t expected = call.memory.nbytes(), received = call.message.received();
  call.work->set_source(call.message.source());
  if (received != expected)
    throw CollectiveError(
        CollectiveFailure::kMismatch, rank(),
        text(call.work->title(), " on rank ", rank(), ": rank ", call.message.source(), " sent ", received,
             " bytes and the tensor has ", expected, "; both must have the same shape and dtype"));
  if (call.target.defined()) copy_result(call.target, call.memory);
}

void GroupProgress::check(Session& session) { check_calls(&session); }

void GroupProgress::check_calls(Session* session) {
  check_peers(session);
  check_deadlines(session);
}

void GroupProgress::check_open_calls() noexcept {
  if (runs_here_) return;  // its own call checks
  if (running_ != nullptr) {
    if (running_->session == nullptr || running_->interruption) return;
    try {
      check_calls(running_->session);
    } catch (const std::exception&) {
      running_->interruption = std::current_exception();
    }
  } else if (!posted_.empty()) {
    try {
      check_calls(nullptr);
    } catch (const std::exception&) {
      fail_group_for_exception();
      fail_open_calls();
    }
  }
}

void GroupProgress::throw_if_failed() const {
  if (!failed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(engine_->mutex());
  throw_failure(*failure_);
}

void GroupProgress::check_ended_processes(int timeout_ms) {
  epoll_event events[8];
  const int count = epoll_wait(events_.number(), events, 8, timeout_ms);
  for (int i = 0; i < count; i++) {
    // Messages that the process sent before it ended are still received; its other messages fail later.
    const int peer = events[i].data.fd;
    const StatusPage* const page = peers_.status_page(peer);
    ended_peers_.push_back(peer);
    if (!loss_ && (page == nullptr || !page->has_left())) loss_ = Loss{peer, Clock::now()};
    epoll_ctl(events_.number(), EPOLL_CTL_DEL, peers_.process_descriptor(peer), nullptr);
  }
}

}  // namespace accel::comm::ucx
