// SPDX-License-Identifier: Apache-2.0
// Progress bars: count what a loop does, and show it as a line. @accelerate utils.tqdm
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "config/generated/settings/progress/progress.hpp"
#include "logging/progress_display.hpp"
#include "logging/progress_line.hpp"
#include "logging/progress_rate.hpp"
#include "logging/terminal.hpp"

namespace accel::track {

// Any thread may call.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;
  using Show = ProgressDisplay::Show;

  // `shows`: whether this rank shows anything at all.
  ProgressBar(std::string label, std::optional<int64_t> total, const ProgressSettings& settings, bool shows, Show show,
              Terminal& terminal = Terminal::of_stderr(), Clock::time_point now = Clock::now());
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(int64_t count, Clock::time_point now = Clock::now());
  void set_total(std::optional<int64_t> total);
  // A line above the open bars, where this one is shown. kIo
  void write(const std::string& line) { display_.write(line); }
  void set_values(ProgressValues values);
  // Reuses the bar for another round, from 0.
  void restart(std::optional<int64_t> total, const std::string& label, Clock::time_point now = Clock::now());
  ProgressState state(Clock::time_point now = Clock::now());
  void end(Clock::time_point now = Clock::now());
  bool has_ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  void draw(Clock::time_point now, bool is_last);
  ProgressState sampled(Clock::time_point now);

  const std::string unit_;
  const Clock::duration interval_;
  ProgressDisplay display_;
  std::atomic<int64_t> count_;
  std::atomic<Clock::rep> due_;  // when the next line may be drawn: never, where nothing is shown
  std::atomic<bool> ended_{false};
  std::atomic<std::thread::id> drawer_{};  // who is drawing

  std::mutex mutex_;  // of what follows
  std::string label_;
  std::optional<int64_t> total_;
  ProgressValues values_;
  Clock::time_point begun_;
  ProgressRate rate_;
};

}  // namespace accel::track
