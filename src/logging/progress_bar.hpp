// Progress bars: count what a loop does, and show it as a line. @accelerate utils.tqdm
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "config/generated/settings.hpp"
#include "logging/terminal.hpp"

namespace accel::track {

// The state of a bar. Drawn by progress_line().
struct ProgressState {
  int64_t count = 0;
  std::optional<int64_t> total;
  double seconds = 0;          // since it was opened
  std::optional<double> rate;  // a second, of late
  std::optional<double> remaining_seconds;
};

// None stands for the memory of the process.
using ProgressValue = std::variant<std::monostate, bool, int64_t, double, std::string>;
using ProgressValues = std::vector<std::pair<std::string, ProgressValue>>;

// "train:  40% |####      | 40/100 [00:12<00:18, 3.3 steps/s, loss 1.23]", in so many columns.
std::string progress_line(const std::string& label, const std::string& unit, const ProgressState& state,
                          const ProgressValues& values, size_t columns, bool is_utf8);

// Any thread may call.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;
  // Gets a line, and whether it is the last one. Empty: the lines go to stderr.
  using Show = std::function<void(const char* line, bool is_last)>;

  // `shows`: whether this rank shows anything at all.
  ProgressBar(std::string label, std::optional<int64_t> total, const ProgressSettings& settings, bool shows, Show show,
              Terminal& terminal = Terminal::of_stderr(), Clock::time_point now = Clock::now());
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(int64_t count, Clock::time_point now = Clock::now());
  void set_total(std::optional<int64_t> total);
  // A line above the open bars, where this one is shown. kIo
  void write(const std::string& line);
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
  const bool leaves_;
  const std::optional<size_t> width_;
  const Clock::duration interval_;
  const Show show_;
  Terminal& terminal_;
  const bool is_utf8_;
  bool shows_;
  std::shared_ptr<Terminal::Line> line_;  // null where it is not a terminal
  std::atomic<int64_t> count_;
  std::atomic<Clock::rep> due_;  // when the next line may be drawn: never, where nothing is shown
  std::atomic<bool> ended_{false};
  std::atomic<std::thread::id> drawer_{};  // who is drawing

  std::mutex mutex_;  // of what follows
  std::string label_;
  std::optional<int64_t> total_;
  ProgressValues values_;
  Clock::time_point begun_;
  // [Note: rate of progress] The counts and seconds between two looks, which decay with kRateSeconds: the rate follows
  // changes, and one slow step does not make it jump.
  Clock::time_point looked_;
  int64_t count_seen_;
  double recent_count_ = 0, recent_seconds_ = 0;
};

}  // namespace accel::track
