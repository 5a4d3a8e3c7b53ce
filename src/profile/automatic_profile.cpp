// SPDX-License-Identifier: Apache-2.0
#include "profile/automatic_profile.hpp"

#include <unistd.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "profile/profiler.hpp"
#include "trace/step_times.hpp"

namespace accel::profile {
namespace {

// [Note: automatic profiles] Everything is recorded from the beginning, and dropped when the steps that are skipped
// have ended: a program that ends earlier is recorded nevertheless. A step is what lies between two updates, as the
// step report has it. Nobody waits for other ranks, which may be at another step, or gone: the command merges the
// files.
class AutomaticProfile {
 public:
  AutomaticProfile(ProfileSettings settings, const std::shared_ptr<comm::Communicator>& communicator,
                   c10::DeviceType device)
      : skipped_(settings.skip_first.value),
        last_(settings.active.value ? *settings.active.value : std::numeric_limits<int64_t>::max()),
        step_times_(communicator->step_times()),
        profiler_(without_schedule(std::move(settings)), communicator, device) {
    last_ = last_ > std::numeric_limits<int64_t>::max() - skipped_ ? last_ : last_ + skipped_;
    step_times_->set_step_ended([this] { step(); });
  }

  void end() noexcept {
    if (getpid() != process_ || std::this_thread::get_id() != thread_ || profiler_.has_ended()) return;
    try {
      profiler_.end(/*waits=*/false);
    } catch (const std::exception& error) {
      report(error);
    }
  }

 private:
  static ProfileSettings without_schedule(ProfileSettings settings) {
    settings.active = std::nullopt;
    return settings;
  }

  static void report(const std::exception& error) noexcept {
    try {
      log(LogLevel::kError, "the profile of this program fails: ", error.what());
    } catch (const std::exception&) {
      // No memory for the message.
    }
  }

  void step() noexcept {
    if (std::this_thread::get_id() != thread_ || profiler_.has_ended()) return;
    try {
      profiler_.step();
      if (profiler_.step_number() == skipped_) profiler_.restart();
      if (profiler_.step_number() == last_) profiler_.end(/*waits=*/false);
    } catch (const std::exception& error) {
      report(error);
    }
  }

  const pid_t process_ = getpid();
  const std::thread::id thread_ = std::this_thread::get_id();
  const int64_t skipped_;
  int64_t last_;
  const std::shared_ptr<StepTimes> step_times_;
  Profiler profiler_;
};

// Never destroyed: the process may end in any order.
std::atomic<AutomaticProfile*> automatic_profile{nullptr};

// Before what LibTorch has of the thread is gone: exit() destroys that first, and runs atexit() functions later.
struct EndsWithThread {
  ~EndsWithThread() { end_automatic_profile(); }
};

}  // namespace

bool is_profiled_automatically() { return environment_flag("ACCEL_PROFILE_PROGRAM").value_or(false); }

void begin_automatic_profile(const ProfileSettings& settings, std::shared_ptr<comm::Communicator> communicator,
                             c10::DeviceType device) {
  static std::once_flag first;
  std::call_once(first, [&] {
    automatic_profile = std::make_unique<AutomaticProfile>(settings, communicator, device).release();
    static thread_local const EndsWithThread ends;
  });
}

void end_automatic_profile() noexcept {
  if (AutomaticProfile* const profile = automatic_profile.load()) profile->end();
}

}  // namespace accel::profile
