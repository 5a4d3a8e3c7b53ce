#include "logging/progress_bar.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "logging/process_memory.hpp"

namespace accel::track {
namespace {

constexpr double kRateSeconds = 10;
constexpr size_t kMostBarColumns = 40, kLeastBarColumns = 4;

template <typename... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  char text[64];
  std::snprintf(text, sizeof text, format, arguments...);
  return text;
}

// "00:12", "1:02:03", "2d 01:02:03"
std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::min(std::max(seconds, 0.0), 3e9));
  const long long days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60, rest = whole % 60;
  if (days > 0) return formatted("%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  if (hours > 0) return formatted("%lld:%02lld:%02lld", hours, minutes, rest);
  return formatted("%02lld:%02lld", minutes, rest);
}

std::string rate_text(double rate) { return formatted(rate < 1000 ? "%.3g" : "%.0f", rate); }

std::string bytes_text(int64_t bytes) {
  constexpr double kMega = 1e6, kGiga = 1e9;
  const auto number = static_cast<double>(bytes);
  return number < kGiga ? formatted("%.0f MB", number / kMega) : formatted("%.2f GB", number / kGiga);
}

std::string value_text(const ProgressValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return formatted("%.4g", *number);
  if (const auto* words = std::get_if<std::string>(&value)) return *words;
  return bytes_text(process_memory().resident);
}

std::string bar_text(double fraction, size_t columns, bool is_utf8) {
  constexpr const char* kEighths[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
  const auto eighths = static_cast<size_t>(fraction * static_cast<double>(columns * 8));
  const size_t full = is_utf8 ? eighths / 8 : static_cast<size_t>(fraction * static_cast<double>(columns));
  const size_t rest = is_utf8 ? eighths % 8 : 0;
  std::string bar;
  for (size_t i = 0; i < full; i++) bar += is_utf8 ? "\u2588" : "#";
  bar += kEighths[rest];
  return bar + std::string(columns - full - (rest > 0 ? 1 : 0), ' ');
}

void check_total(std::optional<int64_t> total) {
  require(!total || *total >= 0, Status::kInvalidArgument, "total is ", total.value_or(0),
          "; expected at least 0, or ACCEL_UNSET_INT64 where it is unknown");
}

// Where there is no room the label is cut first.
std::string fitted(const std::string& front, const std::string& back, size_t columns) {
  constexpr size_t kLeastLabel = 8;
  const size_t room = columns - std::min(columns, columns_of(back));
  return cut_to_columns(cut_to_columns(front, std::max(room, kLeastLabel)) + back, columns);
}

}  // namespace

std::string progress_line(const std::string& label, const std::string& unit, const ProgressState& state,
                          const ProgressValues& values, size_t columns, bool is_utf8) {
  const bool has_total = state.total && *state.total > 0 && state.count <= *state.total;
  std::string front = label.empty() ? "" : label + ": ";
  std::string back = text(state.count);
  if (has_total)
    back += text("/", *state.total);
  else
    back += " " + unit;
  back += " [" + duration_text(state.seconds);
  if (has_total) back += "<" + (state.remaining_seconds ? duration_text(*state.remaining_seconds) : "?");
  back += ", " + (state.rate ? rate_text(*state.rate) : "?") + " " + unit + "/s";
  for (const auto& [name, value] : values) back += ", " + name + " " + value_text(value);
  back += ']';
  back = printable(back);
  front = printable(front);
  if (!has_total) return fitted(front, back, columns);
  const double fraction = static_cast<double>(state.count) / static_cast<double>(*state.total);
  front += formatted("%3d%% ", static_cast<int>(fraction * 100));
  const size_t used = columns_of(front) + columns_of(back) + 3;  // "|", "|" and a space
  if (used + kLeastBarColumns > columns) return fitted(front, back, columns);
  return front + "|" + bar_text(fraction, std::min(columns - used, kMostBarColumns), is_utf8) + "| " + back;
}

ProgressBar::ProgressBar(std::string label, std::optional<int64_t> total, const ProgressSettings& settings, bool shows,
                         Show show, Terminal& terminal, Clock::time_point now)
    : unit_(settings.unit),
      leaves_(settings.leave),
      width_(settings.width.value ? std::optional<size_t>(static_cast<size_t>(*settings.width)) : std::nullopt),
      interval_(std::chrono::milliseconds(settings.interval_ms.value)),
      show_(std::move(show)),
      terminal_(terminal),
      is_utf8_(speaks_utf8()),
      count_(settings.initial),
      due_(std::numeric_limits<Clock::rep>::max()),
      label_(std::move(label)),
      total_(total),
      begun_(now),
      looked_(now),
      count_seen_(settings.initial) {
  check_total(total);
  const bool on_terminal = !show_ && terminal.is_terminal();
  shows_ = shows && !settings.disable.value_or(!show_ && !on_terminal);
  if (!shows_) return;
  if (on_terminal) line_ = terminal.open_line();
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
  check_total(total);
  const std::lock_guard<std::mutex> lock(mutex_);
  total_ = total;
}

void ProgressBar::write(const std::string& line) {
  if (!shows_) return;
  errno = 0;
  require(terminal_.print(line + "\n"), Status::kIo, "cannot write to stderr: ", std::strerror(errno));
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
  begun_ = looked_ = now;
  count_seen_ = 0;  // the rate stays that of the last round
  if (shows_) due_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

ProgressState ProgressBar::state(Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sampled(now);
}

ProgressState ProgressBar::sampled(Clock::time_point now) {
  const auto seconds = [](Clock::duration duration) { return std::chrono::duration<double>(duration).count(); };
  ProgressState state;
  state.count = count_.load(std::memory_order_relaxed);
  state.total = total_;
  state.seconds = seconds((has_ended() ? looked_ : now) - begun_);
  if (!has_ended() && now > looked_) {
    const double passed = seconds(now - looked_);
    const double kept = std::exp(-passed / kRateSeconds);
    recent_count_ = recent_count_ * kept + static_cast<double>(state.count - count_seen_);
    recent_seconds_ = recent_seconds_ * kept + passed;
    count_seen_ = state.count;
    looked_ = now;
  }
  if (recent_seconds_ > 0 && recent_count_ > 0) state.rate = recent_count_ / recent_seconds_;
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
    const size_t columns = width_ ? *width_ : line_ ? std::max<size_t>(terminal_.width(), 2) - 1 : terminal_.width();
    line = progress_line(label_, unit_, sampled(now), values_, columns, is_utf8_);
  }
  if (show_) {
    show_(line.c_str(), is_last);
  } else if (line_) {
    terminal_.show(*line_, std::move(line));
    if (is_last) terminal_.close(*line_, leaves_);
  } else {
    terminal_.print(line + "\n");
  }
}

void ProgressBar::end(Clock::time_point now) {
  require(drawer_.load() != std::this_thread::get_id(), Status::kInvalidState,
          "the callback of a progress bar ends the bar; expected the loop to");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sampled(now);
    if (ended_.exchange(true)) return;
  }
  if (shows_) draw(now, true);
}

}  // namespace accel::track
