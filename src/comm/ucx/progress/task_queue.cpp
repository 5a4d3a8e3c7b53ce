// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/task_queue.hpp"

#include <list>
#include <new>
#include <optional>
#include <utility>

#include "comm/collective_error.hpp"
#include "comm/ucx/host/status_page.hpp"
#include "comm/ucx/progress/copy_result.hpp"

namespace accel::comm::ucx {

void TaskQueue::number(PostedTask& task) {
  task.work->name_call(task.function, sequence_);
  for (auto& part : task.task.parts) part.header.sequence = sequence_++;
}

void TaskQueue::run_here(PostedTask& task) noexcept {
  std::exception_ptr error;
  try {
    runner_.run_here(task);
  } catch (const std::exception&) {
    error = fail(task);
  }
  end(task, std::move(error));
}

bool TaskQueue::progress() {
  if (!runner_.is_running() && waiting_.may_have_calls()) start_next();
  return runner_.is_running() && resume();
}

void TaskQueue::finish_running() {
  while (runner_.is_running()) resume();
}

std::optional<PostedTask> TaskQueue::next() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_.throw_if_known();
  return waiting_.pop();
}

void TaskQueue::start_next() {
  try {
    runner_.prepare();
    if (auto task = next()) runner_.begin(std::move(*task));
  } catch (const std::bad_alloc&) {  // no stack: the task fails
    if (auto task = next()) end(*task, fail(*task));
  }
}

// Whether it was resumed.
bool TaskQueue::resume() {
  if (!runner_.resume()) return false;
  auto ended = runner_.take_ended();
  if (!ended) return true;
  if (ended->error) {
    try {
      std::rethrow_exception(ended->error);
    } catch (const std::exception&) {
      ended->error = fail(ended->task);
    }
  }
  end(ended->task, std::move(ended->error));
  return true;
}

// Not on a fiber: callbacks may need a large stack.
void TaskQueue::end(PostedTask& posted, std::exception_ptr error) noexcept {
  Task& task = posted.task;
  if (!error) {
    try {
      for (const auto& [to, from] : task.copies) copy_result(to, from);
      if (StatusPage* const page = peers_.status_page(peers_.rank())) page->end();
    } catch (const std::exception&) {
      error = fail(posted);
    }
  }
  // Who waits may count on the memory: it frees it, and takes some for the next call.
  task.held.clear();
  task.copies.clear();
  posted.work->complete(std::move(error), posted.thread_state);
}

std::exception_ptr TaskQueue::fail(PostedTask& task) noexcept {
  for (at::Tensor& memory : task.task.held) runner_.memory().keep(std::move(memory));
  try {
    const auto title = task.work->title();
    auto failure = current_failure(peers_.job_ranks().own(), title);
    if (!group_survives(failure.kind)) {
      failure = detector_.explain(std::move(failure), title);
      failure_.set(failure);
    } else {
      skip_rest_of(task);
    }
    return std::make_exception_ptr(failure.error());
  } catch (const std::exception&) {
    failure_.set(failure_without_memory(peers_.job_ranks().own()));
    return std::current_exception();
  }
}

void TaskQueue::skip_rest_of(const PostedTask& task) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t skipped = task.task.parts.back().header.sequence - task.work->getSequencenumber();
  if (failure_.is_known() || skipped == 0) return;
  sequence_ -= skipped;
  for (PostedTask& later : waiting_.calls()) {
    for (auto& part : later.task.parts) part.header.sequence -= skipped;
    later.work->set_sequence(later.task.parts[0].header.sequence);
  }
}

void TaskQueue::fail_waiting(const std::exception_ptr& error) noexcept {
  std::list<PostedTask> waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting = waiting_.take_all();
  }
  for (auto& task : waiting) task.work->complete(error, task.thread_state);
}

}  // namespace accel::comm::ucx
