// SPDX-License-Identifier: Apache-2.0
// Profiler: records the steps of a schedule.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "comm/communicator.hpp"
#include "config/generated/settings/profiler/profile.hpp"
#include "json/json.hpp"
#include "profile/clock_offset.hpp"
#include "profile/profile_recorder.hpp"
#include "trace/profile_schedule.hpp"

namespace accel::profile {

// All calls but step_number() are on the thread that made it.
// One that is destroyed before its end writes nothing.
class Profiler {
 public:
  // Begins. Collective with output_trace_dir, for which the ranks compare their clocks.
  Profiler(ProfileSettings settings, std::shared_ptr<comm::Communicator> communicator, c10::DeviceType device);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Runs when a cycle is complete.
  void set_trace_ready(std::function<void()> trace_ready) { trace_ready_ = std::move(trace_ready); }

  void step();
  int64_t step_number() const { return step_; }
  // Drops what is being recorded, and records from now on.
  void restart();
  // Does nothing the second time. `waits`: the ranks wait for each other's files, and rank 0 merges them.
  void end(bool waits = true);
  bool has_ended() const { return has_ended_; }

  // These describe the latest complete cycle.
  void export_trace(const std::string& path);
  c10::IValue key_averages(bool group_by_shapes) const;
  c10::IValue memory_timeline() const;

 private:
  void require_own_thread() const;
  const ProfileCycle& latest() const;
  ProfileCycle stop();
  void finish_cycle();
  Json header() const;
  std::string path_of(const std::string& name) const;

  const ProfileSettings settings_;
  const std::shared_ptr<comm::Communicator> communicator_;
  const std::thread::id thread_ = std::this_thread::get_id();
  ProfileRecorder recorder_;
  std::function<void()> trace_ready_;
  ClockOffset clock_;
  std::atomic<int64_t> step_{0};
  track::ProfileAction action_ = track::ProfileAction::kNone;
  std::optional<ProfileCycle> latest_;
  bool has_ended_ = false;
};

}  // namespace accel::profile
