// SPDX-License-Identifier: Apache-2.0
#include "logging/progress_bar.hpp"

#include <limits>
#include <utility>

#include "base/error.hpp"

namespace accel::track {
namespace {

std::optional<int64_t> checked_total(std::optional<int64_t> total) {
  require(!total || *total >= 0, Status::kInvalidArgument, "total is ", total.value_or(0),
          "; expected at least 0, or ACCEL_UNSET_INT64 where it is unknown");
  return total;
}

}  // namespace

ProgressBar::ProgressBar(std::string label, std::optional<int64_t> total, const ProgressSettings& settings, bool shows,
                         Show show, Terminal& terminal, Clock::time_point now)
    : unit_(settings.unit),
      interval_(std::chrono::milliseconds(settings.interval_ms.value)),
      display_(settings, shows, std::move(show), terminal),
      count_(settings.initial),
      due_(std::numeric_limits<Clock::rep>::max()),
      label_(std::move(label)),
      total_(checked_total(total)),
      begun_(now),
      rate_(settings.initial, now) {
  if (!display_.shows()) return;
  display_.open();
  draw(now, false);
  due_.store((now + interval_).time_since_epoch().count(), std::memory_order_relaxed);
}

ProgressBar::~ProgressBar() {
  try {
    end();
  } catch (...) {  // it was its own callback that released it
  }
}

void ProgressBar::update(int64_t count, Clock::time_point now) {
  require(count >= 0, Status::kInvalidArgument, "count is ", count, "; expected at least 0");
  require(!has_ended(), Status::kInvalidState, "the progress bar has ended; open another one");
  count_.fetch_add(count, std::memory_order_relaxed);
  auto due = due_.load(std::memory_order_relaxed);
  if (now.time_since_epoch().count() < due) return;
  if (due_.compare_exchange_strong(due, (now + interval_).time_since_epoch().count())) draw(now, false);
}

void ProgressBar::set_total(std::optional<int64_t> total) {
  const std::optional<int64_t> checked = checked_total(total);
  const std::lock_guard<std::mutex> lock(mutex_);
  total_ = checked;
}

void ProgressBar::set_values(ProgressValues values) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_ = std::move(values);
}

void ProgressBar::restart(std::optional<int64_t> total, const std::string& label, Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  total_ = total;
  label_ = label;
  count_.store(0, std::memory_order_relaxed);
  begun_ = now;
  rate_.restart(0, now);
  if (display_.shows()) due_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

ProgressState ProgressBar::state(Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sampled(now);
}

ProgressState ProgressBar::sampled(Clock::time_point now) {
  ProgressState state;
  state.count = count_.load(std::memory_order_relaxed);
  state.total = total_;
  state.seconds = std::chrono::duration<double>((has_ended() ? rate_.last_look() : now) - begun_).count();
  if (!has_ended()) rate_.look(state.count, now);
  state.rate = rate_.rate();
  if (state.rate && total_ && state.count <= *total_)
    state.remaining_seconds = static_cast<double>(*total_ - state.count) / *state.rate;
  return state;
}

// One thread draws at a time. Others leave their line out, but the last one waits.
void ProgressBar::draw(Clock::time_point now, bool is_last) {
  const std::thread::id self = std::this_thread::get_id();
  for (std::thread::id nobody{}; !drawer_.compare_exchange_weak(nobody, self); nobody = {}) {
    if (nobody == std::thread::id{}) continue;
    if (!is_last) return;
    std::this_thread::yield();
  }
  struct Done {
    std::atomic<std::thread::id>& drawer;
    ~Done() { drawer.store({}); }
  } const done{drawer_};
  std::string line;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    line = progress_line(label_, unit_, sampled(now), values_, display_.columns(), display_.is_utf8());
  }
  display_.show(std::move(line), is_last);
}

void ProgressBar::end(Clock::time_point now) {
  require(drawer_.load() != std::this_thread::get_id(), Status::kInvalidState,
          "the callback of a progress bar ends the bar; expected the loop to");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sampled(now);
    if (ended_.exchange(true)) return;
  }
  if (display_.shows()) draw(now, true);
}

}  // namespace accel::track
