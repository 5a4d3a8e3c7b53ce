// SPDX-License-Identifier: Apache-2.0
#include "cli/soak/soak.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cli/exit_status.hpp"
#include "cli/soak/known_products.hpp"
#include "cli/soak/memory_pattern.hpp"
#include "json/json.hpp"
#include "machine/host_memory.hpp"

namespace accel::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRoundsBetweenSlices = 4;  // about as much time for products as for memory
// For each processor: a fourth of what it writes, so that a short test compares, too.
constexpr double kBytesOfSecond = 32 << 20;
constexpr int kShellSignalStatus = 128;  // and the number of the signal, as shells have it

std::atomic<int> received_signal{0};

// Ends the test early, and says what was done.
class SignalScope {
 public:
  SignalScope() {
    struct sigaction action {};
    received_signal = 0;
    action.sa_handler = [](int number) { received_signal = number; };
    for (size_t i = 0; i < kSignals; i++) ::sigaction(kNumbers[i], &action, &former_[i]);
  }
  ~SignalScope() {
    for (size_t i = 0; i < kSignals; i++) ::sigaction(kNumbers[i], &former_[i], nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static constexpr int kNumbers[] = {SIGINT, SIGTERM};
  static constexpr size_t kSignals = 2;
  struct sigaction former_[kSignals] = {};
};

std::vector<int> usable_numbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> numbers;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {-1};  // more processors than the set has: not bound
  for (int number = 0; number < CPU_SETSIZE; number++)
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  return numbers;
}

void bind_thread(int number) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (number < 0) return;
  CPU_SET(number, &set);
  (void)::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);  // where it may not, it tests another one
}

std::string gibibytes(uint64_t bytes) {
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
  return shown;
}

class Soak {
 public:
  explicit Soak(const SoakSettings& settings) : settings_(settings), numbers_(usable_numbers()), begin_(Clock::now()) {}

  int run() {
    const auto all = static_cast<size_t>(settings_.memory.value_or(available_host_memory() / 2));
    const size_t bytes =
        std::min(all / numbers_.size(), static_cast<size_t>(settings_.length.count() * kBytesOfSecond));
    const SignalScope signals;
    std::vector<std::thread> threads;
    for (const int number : numbers_) threads.emplace_back([this, number, bytes] { work(number, bytes); });
    while (!must_end()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (std::thread& thread : threads) thread.join();
    report();
    if (failing_processors_ + failing_memory_ > 0) return kFailure;
    return received_signal != 0 ? kShellSignalStatus + received_signal.load() : kSuccess;
  }

 private:
  bool must_end() const { return received_signal != 0 || Clock::now() - begin_ >= settings_.length; }

  void work(int number, size_t bytes) {
    bind_thread(number);
    bool has_failed = false;
    const auto note = [&](const std::optional<std::string>& found, bool is_memory = false) {
      if (!found || has_failed) return;  // one line for each processor
      has_failed = true;
      fail(number, *found, is_memory);
    };
    try {
      const KnownProducts products;  // its results are those of this processor
      MemoryPattern memory(bytes);
      if (!products.are_results_right()) note("products of integers: their checksum is not the known one");
      for (uint64_t round = 0; !must_end(); round++) {
        note(products.check(round));
        products_ += products.products_of_round();
        if (round % kRoundsBetweenSlices == 0) note(memory.check_slice(), /*is_memory=*/true);
      }
      written_ += memory.bytes_written();
      compared_ += memory.bytes_compared();
    } catch (const std::exception& error) {
      note(std::string(error.what()));
    }
  }

  void fail(int number, const std::string& problem, bool is_memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    (is_memory ? failing_memory_ : failing_processors_)++;
    say(number < 0 ? "a processor" : text("processor ", number), problem, /*works=*/false);
  }

  void report() {
    const auto result = [](int failing) {
      return failing == 0 ? std::string("none wrong") : text("found wrong by ", failing, " processors");
    };
    std::string early;
    if (received_signal != 0)
      early = text("; interrupted, ", static_cast<int>(settings_.length.count()), " s were asked for");
    say("processors",
        text(numbers_.size(), " processors, ", products_.load(), " products, ", result(failing_processors_), early),
        failing_processors_ == 0);
    say("memory",
        text(gibibytes(written_), " written, ", gibibytes(compared_), " compared a pass later, ",
             result(failing_memory_), early),
        failing_memory_ == 0);
  }

  void say(const std::string& part, const std::string& detail, bool works) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (settings_.is_json)
      std::printf("%s\n", print_json(Json(Json::Members{{"part", Json(part)},
                                                        {"works", Json(works)},
                                                        {"seconds", Json::number(seconds)},
                                                        {"detail", Json(detail)}}))
                              .c_str());
    else
      std::printf("%-14s %-6s %7.3f s  %s\n", part.c_str(), works ? "works" : "FAILS", seconds, detail.c_str());
    std::fflush(stdout);
  }

  const SoakSettings settings_;
  const std::vector<int> numbers_;
  const Clock::time_point begin_;
  std::mutex mutex_;
  int failing_processors_ = 0, failing_memory_ = 0;
  std::atomic<uint64_t> products_{0}, written_{0}, compared_{0};
};

}  // namespace

int run_soak(const SoakSettings& settings) { return Soak(settings).run(); }

}  // namespace accel::program
