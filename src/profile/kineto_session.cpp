// SPDX-License-Identifier: Apache-2.0
#include "profile/kineto_session.hpp"

#include <c10/util/Logging.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/split_text.hpp"
#include "os/mapped_file.hpp"
#include "os/system_error.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::profile {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

// The devices that Kineto knows; the others are nothing that it records.
std::string name_of(ActivityType activity) {
  if (activity == ActivityType::HPU) return "hpu";  // actToString() has no place for it
  if (activity == ActivityType::MTIA) return "mtia";
  std::string name = torch::profiler::impl::actToString(activity);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

constexpr ActivityType kLastActivity = ActivityType::MTIA;

bool find_activity(const std::string& name, ActivityType& found) {
  for (int i = 0; i <= static_cast<int>(kLastActivity); i++) {
    found = static_cast<ActivityType>(i);
    if (name_of(found) == name) return true;
  }
  return false;
}

std::string known_activities() {
  std::string known;
  for (int i = 0; i <= static_cast<int>(kLastActivity); i++)
    known += (i == 0 ? "" : ", ") + name_of(static_cast<ActivityType>(i));
  return known;
}

std::set<ActivityType> read_activities(const std::string& names) {
  std::set<ActivityType> activities;
  for (std::string name : split_text(names)) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    ActivityType activity{};
    require(find_activity(name, activity), Status::kInvalidArgument, "activities has '", name, "'; expected some of ",
            known_activities());
    if (activity != ActivityType::CPU) {
      const std::optional<c10::Device> device = tensor::find_device(name);
      require(device.has_value(), Status::kUnsupported, "activities has '", name, "', which LibTorch cannot use here");
      tensor::require_device(*device);
    }
    activities.insert(activity);
  }
  require(!activities.empty(), Status::kInvalidArgument, "activities is empty; expected some of ", known_activities());
  return activities;
}

std::set<ActivityType> default_activities(c10::DeviceType device) {
  std::set<ActivityType> activities{ActivityType::CPU};
  ActivityType activity{};
  if (find_activity(c10::DeviceTypeName(device, /*lower_case=*/true), activity)) activities.insert(activity);
  return activities;
}

// The thread of an abandoned recording; that of no thread: none.
std::atomic<std::thread::id>& abandoned_on() {
  static std::atomic<std::thread::id> thread{std::thread::id()};
  return thread;
}
std::atomic<bool> session_exists{false};

class TemporaryFile {
 public:
  TemporaryFile() {
    std::error_code error;
    std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) folder = "/tmp";
    path_ = (folder / "accel-trace-XXXXXX").string();
    const int descriptor = ::mkstemp(path_.data());
    if (descriptor < 0) fail_system(Status::kIo, "write", path_);
    ::close(descriptor);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Recorded final : public KinetoTrace {
 public:
  explicit Recorded(std::unique_ptr<kineto::ProfilerResult> result) : result_(std::move(result)) {}

  void for_each_event(const std::function<void(const KinetoEvent& event)>& visit) const override {
    for (const kineto::KinetoEvent& event : result_->events()) {
      if (event.isHiddenEvent()) continue;
      KinetoEvent read;
      read.name = event.name();
      read.thread = event.deviceResourceId();
      read.begun = static_cast<int64_t>(event.startNs());
      read.ended = static_cast<int64_t>(event.endNs());
      read.bytes = event.nBytes();
      read.flops = static_cast<int64_t>(event.flops());
      read.device = event.deviceType();
      read.device_index = event.deviceIndex();
      if (read.name == "[memory]") {
        read.kind = KinetoEvent::Kind::kMemory;
      } else if (read.device != c10::DeviceType::CPU) {
        read.kind = KinetoEvent::Kind::kDevice;
        read.correlation = event.linkedCorrelationId();
      } else {
        read.correlation = event.correlationId();
        if (event.hasShapes()) read.shapes = event.shapes().vec();
      }
      visit(read);
    }
  }

  std::string_view text() override {
    if (!text_) {
      const TemporaryFile file;
      result_->save(file.path());  // once only; logs what fails
      text_.emplace(file.path());
    }
    require(text_->size() > 0, Status::kIo, "cannot write '", text_->path(),
            "'; expected room in the folder of temporary files, TMPDIR");
    return text_->text();
  }

 private:
  const std::unique_ptr<kineto::ProfilerResult> result_;
  std::optional<MappedFile> text_;
};

// [Note: the end of a process that has just begun to profile] Kineto's first profiler starts a thread, which reads a
// static map when it begins to run. A process that ends before that destroys the map under it, and aborts. So its exit
// waits until the thread is this old.
constexpr std::chrono::milliseconds kAgeOfThread{200};
std::atomic<std::chrono::steady_clock::rep> thread_begun{0};

void wait_for_thread() {
  const std::chrono::steady_clock::time_point begun{std::chrono::steady_clock::duration(thread_begun.load())};
  std::this_thread::sleep_until(begun + kAgeOfThread);
}

// Ends a recording before what LibTorch has of the thread is gone: exit() destroys that first, and would crash later.
// Constructed behind it, as the order is reversed.
struct RecordingEndsWithThread {
  ~RecordingEndsWithThread() {
    if (recording == nullptr || !recording->exchange(false)) return;
    try {
      kineto::disableProfiler();
    } catch (const std::exception&) {
      // It records no more; there is nobody to tell.
    }
    std::thread::id own = std::this_thread::get_id();
    if (abandoned_on().compare_exchange_strong(own, std::thread::id())) session_exists = false;
  }

  std::shared_ptr<std::atomic<bool>> recording;
};

void end_with_thread(const std::shared_ptr<std::atomic<bool>>& recording) {
  static thread_local RecordingEndsWithThread ends;
  ends.recording = recording;
}

}  // namespace

struct KinetoSession::Configuration {
  Configuration(const ProfileSettings& settings, c10::DeviceType device)
      : config(ProfilerState::KINETO, settings.record_shapes.value, settings.profile_memory.value,
               settings.with_stack.value, settings.with_flops.value, settings.with_modules.value),
        activities(settings.activities.value.empty() ? default_activities(device)
                                                     : read_activities(settings.activities.value)) {
    // LibTorch warns on standard error of memory that was allocated before the recording.
    constexpr int kErrors = 2;
    if (settings.profile_memory.value) FLAGS_caffe2_log_level = std::max(log_level, kErrors);
  }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
  ~Configuration() { FLAGS_caffe2_log_level = log_level; }

  const ProfilerConfig config;
  const std::set<ActivityType> activities;
  const std::thread::id thread = std::this_thread::get_id();
  const int log_level = FLAGS_caffe2_log_level;
};

KinetoSession::KinetoSession(const ProfileSettings& settings, c10::DeviceType device)
    : configuration_(std::make_unique<Configuration>(settings, device)) {
  std::thread::id own = std::this_thread::get_id();
  if (abandoned_on().compare_exchange_strong(own, std::thread::id())) {
    if (torch::profiler::impl::profilerEnabled()) kineto::disableProfiler();
    session_exists = false;
  }
  require(!session_exists.exchange(true), Status::kInvalidState,
          "a profiler records in this process already; end it first, with accel_profile_end() on its thread");
  if (!kineto::isProfilerEnabledInMainThread() && !torch::profiler::impl::profilerEnabled()) return;
  session_exists = false;
  fail(Status::kInvalidState, "a profiler of LibTorch records in this process already; end it first");
}

KinetoSession::~KinetoSession() {
  try {
    if ((is_recording() || is_prepared_) && std::this_thread::get_id() != configuration_->thread) {
      abandoned_on() = configuration_->thread;
      return;
    }
    // Kineto leaves its preparations by a recording only.
    if (is_prepared_) start();
    if (is_recording_->exchange(false)) kineto::disableProfiler();
  } catch (const std::exception&) {
    // It records no more; there is nobody to tell.
  }
  session_exists = false;
}

void KinetoSession::prepare() {
  if (is_prepared_ || is_recording()) return;
  // Read once, when Kineto is loaded: it would write to standard error.
  const EnvironmentDefaults quiet(std::vector<EnvironmentDefaults::Variable>{{"KINETO_LOG_LEVEL", "99"}});
  kineto::prepareProfiler(configuration_->config, configuration_->activities);
  std::chrono::steady_clock::rep none = 0;
  if (thread_begun.compare_exchange_strong(none, std::chrono::steady_clock::now().time_since_epoch().count()))
    std::atexit(wait_for_thread);
  is_prepared_ = true;
}

void KinetoSession::start() {
  prepare();
  try {
    kineto::enableProfiler(configuration_->config, configuration_->activities);
  } catch (const c10::Error& error) {
    fail(Status::kInvalidState, "LibTorch's profiler does not start: ", error.what_without_backtrace());
  }
  is_prepared_ = false;
  *is_recording_ = true;
  end_with_thread(is_recording_);
}

std::unique_ptr<KinetoTrace> KinetoSession::stop() {
  *is_recording_ = false;
  return std::make_unique<Recorded>(kineto::disableProfiler());
}

}  // namespace accel::profile
