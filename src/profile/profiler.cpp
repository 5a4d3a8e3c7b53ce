// SPDX-License-Identifier: Apache-2.0
#include "profile/profiler.hpp"

#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "os/host_name.hpp"
#include "profile/key_averages.hpp"
#include "profile/memory_timeline.hpp"
#include "profile/trace_file.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"
#include "trace/step_times.hpp"
#include "trace/trace_merge.hpp"

namespace accel::profile {
namespace {

using track::ProfileAction;

constexpr size_t kAveragesInHeader = 100;

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::kIo, "output_trace_dir: cannot make the folder '", folder, "': ", error.message());
  require(::access(folder.c_str(), W_OK | X_OK) == 0, Status::kIo, "output_trace_dir: the folder '", folder,
          "' is not writable");
}

Json seconds_of(const StepTimes::Seconds& seconds) {
  Json::Members parts;
  for (size_t part = 0; part < kStepParts; part++)
    parts.emplace_back(step_part_name(static_cast<StepPart>(part)), Json::number(seconds[part]));
  parts.emplace_back("total", Json::number(std::accumulate(seconds.begin(), seconds.end(), 0.0)));
  return Json(std::move(parts));
}

}  // namespace

Profiler::Profiler(ProfileSettings settings, std::shared_ptr<comm::Communicator> communicator, c10::DeviceType device)
    : settings_(std::move(settings)), communicator_(std::move(communicator)), recorder_(settings_, device) {
  if (!settings_.output_trace_dir.value.empty()) {
    make_folder(settings_.output_trace_dir.value);
    clock_ = measure_clock_offset(*communicator_);
  }
  action_ = track::profile_action(settings_, 0);
  if (action_ != ProfileAction::kNone) recorder_.prepare();
  if (track::is_recorded(action_)) recorder_.start(step_);
}

void Profiler::require_own_thread() const {
  require(std::this_thread::get_id() == thread_, Status::kInvalidState,
          "the profiler was begun on another thread; LibTorch records the thread that begins: call it there");
}

ProfileCycle Profiler::stop() {
  communicator_->step_times()->end_recording();
  return recorder_.stop(step_);
}

void Profiler::finish_cycle() {
  latest_ = stop();
  if (!settings_.output_trace_dir.value.empty())
    export_trace(path_of(text("profile_", communicator_->rank(), ".json")));
  if (trace_ready_) trace_ready_();
}

// A step ends the action of the former one and begins its own, as in torch.profiler.
void Profiler::step() {
  require_own_thread();
  require(!has_ended_, Status::kInvalidState, "the profiler has ended; begin another one");
  const ProfileAction before = action_;
  step_++;
  action_ = track::profile_action(settings_, step_);
  if (before == ProfileAction::kRecordAndSave)
    finish_cycle();
  else if (track::is_recorded(before) && !track::is_recorded(action_))
    stop();
  if (action_ != ProfileAction::kNone) recorder_.prepare();
  if (track::is_recorded(action_) && !recorder_.is_recording()) recorder_.start(step_);
}

void Profiler::restart() {
  require_own_thread();
  if (!recorder_.is_recording()) return;
  stop();
  recorder_.start(step_);
}

void Profiler::end(bool waits) {
  require_own_thread();
  if (std::exchange(has_ended_, true)) return;
  std::exception_ptr failure;  // thrown when the other ranks do not wait for this one
  try {
    if (recorder_.is_recording()) finish_cycle();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  recorder_.close();
  const std::string& folder = settings_.output_trace_dir.value;
  if (waits && !folder.empty() && communicator_->size() > 1) {
    communicator_->barrier();
    // Ranks on other hosts may have folders of their own: those files are not here.
    if (settings_.merge.value && communicator_->rank() == 0 && !failure &&
        track::traces_in(folder).size() >= static_cast<size_t>(communicator_->size())) {
      try {
        track::merge_traces({folder}, path_of("profile_merged.json"));
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::string Profiler::path_of(const std::string& name) const {
  return (std::filesystem::path(settings_.output_trace_dir.value) / name).string();
}

const ProfileCycle& Profiler::latest() const {
  require_own_thread();
  require(latest_.has_value(), Status::kInvalidState,
          "the profiler has recorded nothing yet; a cycle is complete after its active steps, or at the end");
  return *latest_;
}

Json Profiler::header() const {
  const ProfileCycle& cycle = latest();
  Json::Members clock, steps, header;
  clock.emplace_back("offset_ns", Json::number(clock_.offset));
  clock.emplace_back("round_trip_ns", Json::number(clock_.round_trip));
  steps.emplace_back("first", Json::number(cycle.first_step));
  steps.emplace_back("end", Json::number(cycle.last_step));
  header.emplace_back("rank", Json::number(int64_t{communicator_->rank()}));
  header.emplace_back("world_size", Json::number(int64_t{communicator_->size()}));
  header.emplace_back("host", Json(host_name()));
  header.emplace_back("pid", Json::number(int64_t{getpid()}));
  header.emplace_back("clock", Json(std::move(clock)));
  header.emplace_back("steps", Json(std::move(steps)));
  header.emplace_back("dropped_spans", Json::number(cycle.spans.dropped));
  const StepTimes::Report report = communicator_->step_times()->report();
  Json::Members times;
  times.emplace_back("steps", Json::number(report.steps));
  times.emplace_back("latest", seconds_of(report.latest));
  times.emplace_back("mean", seconds_of(report.mean));
  header.emplace_back("step_report", Json(std::move(times)));
  std::vector<c10::IValue> averages = accel::profile::key_averages(*cycle.trace, cycle.spans, false).toListRef().vec();
  if (averages.size() > kAveragesInHeader) averages.resize(kAveragesInHeader);
  header.emplace_back("averages", tree::json_of(tree::new_list(std::move(averages))));
  if (communicator_->size() > 1)
    header.emplace_back("flight_record", parse_json(communicator_->flight_record()->to_json(), "flight record"));
  return Json(std::move(header));
}

void Profiler::export_trace(const std::string& path) {
  const ProfileCycle& cycle = latest();
  write_trace(cycle.trace->text(), cycle.spans, header(), path);
}

c10::IValue Profiler::key_averages(bool group_by_shapes) const {
  const ProfileCycle& cycle = latest();
  require(!group_by_shapes || settings_.record_shapes.value, Status::kInvalidState,
          "shapes were not recorded; set record_shapes");
  return accel::profile::key_averages(*cycle.trace, cycle.spans, group_by_shapes);
}

c10::IValue Profiler::memory_timeline() const {
  require(settings_.profile_memory.value, Status::kInvalidState, "memory was not recorded; set profile_memory");
  const ProfileCycle& cycle = latest();
  return accel::profile::memory_timeline(*cycle.trace, cycle.begun);
}

}  // namespace accel::profile
