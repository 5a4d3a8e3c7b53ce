// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/task_runner.hpp"

#include <utility>

#include "comm/ucx/algorithms/run_collective.hpp"
#include "comm/ucx/host/status_page.hpp"

namespace accel::comm::ucx {

TaskRunner::Running::Running(TaskRunner& runner)
    : fiber([this, &runner] {
        try {
          runner.run_parts(*task);
        } catch (const std::exception&) {
          error = std::current_exception();
        }
      }) {}

void TaskRunner::run_here(PostedTask& task) {
  runs_here_ = true;
  try {
    run_parts(task);
  } catch (const std::exception&) {
    runs_here_ = false;
    throw;
  }
  runs_here_ = false;
}

void TaskRunner::prepare() {
  if (spare_ == nullptr) spare_ = std::make_unique<Running>(*this);
}

void TaskRunner::begin(PostedTask task) {
  running_ = std::move(spare_);
  running_->task.emplace(std::move(task));
}

bool TaskRunner::resume() {
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
  return true;
}

std::optional<TaskRunner::Ended> TaskRunner::take_ended() {
  if (running_ == nullptr || !running_->fiber.has_ended()) return std::nullopt;
  std::optional<Ended> ended(Ended{std::move(*running_->task), std::exchange(running_->error, nullptr)});
  running_->task.reset();
  spare_ = std::move(running_);
  return ended;
}

void TaskRunner::check_running() noexcept {
  if (running_->session == nullptr || running_->interruption) return;
  try {
    check(*running_->session);
  } catch (const std::exception&) {
    running_->interruption = std::current_exception();
  }
}

void TaskRunner::add_to(GroupWait& wait) const {
  if (running_ == nullptr) return;
  wait.session = running_->session;
  wait.is_over = running_->interruption != nullptr;
}

void TaskRunner::wait(Session& session) {
  if (running_ != nullptr)
    suspend(session);
  else
    links_.loop.progress_until([&session] { return session.has_arrived(); }, &session);
}

void TaskRunner::suspend(Session& session) {
  Running& running = *running_;
  running.session = &session;
  running.fiber.suspend();
  running.session = nullptr;
  if (running.interruption) std::rethrow_exception(std::exchange(running.interruption, nullptr));
}

void TaskRunner::run_parts(PostedTask& posted) {
  const Task& task = posted.task;
  const SessionLinks links{links_.transport, segment_.get(), tensors_, links_.peers, links_.loop.spin(), *this};
  StatusPage* const page = links_.peers.status_page(links_.peers.rank());
  for (const auto& part : task.parts) {
    if (page != nullptr) page->begin(posted.function, traits_of(part.header.kind).name, part.header.sequence);
    posted.work->set_sequence(part.header.sequence);
    Session session(links, memory().buffers, part.header, posted.function, task.timeout);
    run(part, session);
  }
}

SharedMemory* TaskRunner::shared_memory() {
  return segment_ != nullptr && links_.peers.hosts().count() == 1 ? &tensors_ : nullptr;
}

std::list<CallMemory> TaskRunner::release_memory() {
  segment_.reset();
  return std::move(memory_);
}

}  // namespace accel::comm::ucx
