// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/group_progress.hpp"

#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/host/status_page.hpp"

namespace accel::comm::ucx {

GroupProgress::GroupProgress(ProgressEngine::Membership membership, std::unique_ptr<Transport> transport, Peers peers,
                             std::unique_ptr<HostSegment> segment)
    : engine_(membership->shared_from_this()),
      membership_(std::move(membership)),
      transport_(std::move(transport)),
      peers_(std::move(peers)),
      failure_(engine_->claim().mutex(), peers_),
      detector_(peers_, *transport_),
      messages_(engine_->claim().mutex(), peers_, *transport_, failure_),
      runner_({engine_->loop(), *transport_, peers_, failure_, detector_, messages_}, std::move(segment)),
      tasks_(engine_->claim().mutex(), peers_, failure_, detector_, runner_) {}

GroupProgress::~GroupProgress() { shutdown(); }

void GroupProgress::submit(PostedTask&& task) {
  Claim& claim = engine_->claim();
  std::unique_lock<std::mutex> lock(claim.mutex());
  failure_.throw_if_known();
  tasks_.number(task);
  if (task.task.is_async || claim.is_taken() || !tasks_.is_empty() || runner_.is_running()) {
    tasks_.push(std::move(task));
    lock.unlock();
    return engine_->wake_up();
  }
  claim.take();
  lock.unlock();
  tasks_.run_here(task);
  engine_->release();
}

void GroupProgress::submit(PointToPoint&& call) {
  Claim& claim = engine_->claim();
  std::unique_lock<std::mutex> lock(claim.mutex());
  failure_.throw_if_known();
  if (claim.is_taken()) {
    messages_.push(std::move(call));
    lock.unlock();
    return engine_->wake_up();
  }
  claim.take();
  lock.unlock();
  engine_->loop().expect_calls();
  if (call.is_async) engine_->loop().notify();
  try {
    messages_.post(std::move(call));
  } catch (const std::exception&) {
    failure_.set_to_exception();
    fail_open_calls();
  }
  engine_->release();
}

void GroupProgress::progress_until_complete(UcxWork& work) {
  Claim& claim = engine_->claim();
  std::unique_lock<std::mutex> lock(claim.mutex());
  if (work.isCompleted()) return;
  if (claim.is_taken()) {
    if (claim.is_taken_here())
      throw CollectiveError(CollectiveFailure::kInvalid, peers_.job_ranks().own(),
                            text("waiting for ", work.title(),
                                 " inside a completion callback would wait for itself; "
                                 "chain a callback on its future"));
    return;
  }
  if (open_work() == OpenWork::kNone) return;
  claim.take();
  lock.unlock();
  engine_->loop().progress_until_idle([&work] { return work.isCompleted(); });
  engine_->release();
}

void GroupProgress::fail(CollectiveFailure failure, const std::string& reason) {
  failure_.set({failure, peers_.job_ranks().own(), reason});
  engine_->wake_up();
}

void GroupProgress::shutdown() {
  {
    const std::lock_guard<std::mutex> lock(engine_->claim().mutex());
    if (stop_) return;
    stop_ = true;
  }
  bool open = false;
  engine_->run([&] {
    const std::lock_guard<std::mutex> lock(engine_->claim().mutex());
    open = runner_.runs_here() || open_work() != OpenWork::kNone;
  });
  if (open) abort(end_of_group(peers_.job_ranks().own(), " while calls were open").message);
  for (bool left = false; !left; std::this_thread::yield()) engine_->run([&] { left = leave(); });
  engine_->remove(*this);
  membership_.reset();
}

// False while a call of the group runs on the stack of its caller; it ends soon, because the group has failed.
bool GroupProgress::leave() {
  if (runner_.runs_here()) return false;
  const bool clean = failure_.end(end_of_group(peers_.job_ranks().own(), ""));
  tasks_.finish_running();
  fail_open_calls();
  if (StatusPage* const page = peers_.status_page(peers_.rank()); clean && page != nullptr) page->leave();
  auto memory = runner_.release_memory();
  if (!clean) engine_->keep(std::move(memory));
  return true;
}

OpenWork GroupProgress::open_work() const {
  if (!tasks_.is_empty() || messages_.has_waiting() || runner_.is_running()) return OpenWork::kUrgent;
  return messages_.posted().empty() ? OpenWork::kNone : OpenWork::kMessages;
}

GroupWait GroupProgress::current_wait() const {
  GroupWait wait;
  runner_.add_to(wait);
  wait.for_messages = !messages_.posted().empty();
  return wait;
}

bool GroupProgress::progress() noexcept {
  bool moved = false;
  try {
    if (failure_.is_set() && !runner_.runs_here()) end_failed_calls();
    moved = messages_.progress();
    if (!runner_.runs_here()) moved = tasks_.progress() || moved;
  } catch (const std::exception&) {
    failure_.set_to_exception();
    fail_open_calls();
  }
  return moved;
}

void GroupProgress::end_failed_calls() {
  tasks_.finish_running();
  {
    const std::lock_guard<std::mutex> lock(engine_->claim().mutex());
    if (open_work() == OpenWork::kNone) return;
  }
  fail_open_calls();
}

void GroupProgress::check_open_calls() noexcept {
  if (runner_.runs_here()) return;  // its own call checks
  if (runner_.is_running()) {
    runner_.check_running();
  } else if (!messages_.posted().empty()) {
    try {
      detector_.check(nullptr, messages_.posted());
    } catch (const std::exception&) {
      failure_.set_to_exception();
      fail_open_calls();
    }
  }
}

void GroupProgress::fail_open_calls() noexcept {
  const auto error = failure_.error();
  messages_.fail_all(error, runner_.memory());
  tasks_.fail_waiting(error);
}

}  // namespace accel::comm::ucx
