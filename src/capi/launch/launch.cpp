// SPDX-License-Identifier: Apache-2.0
// Section 15: ranks that this program starts itself, and what is known of the machine.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "accel.h"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/process_check.hpp"
#include "capi/calls/thread_error.hpp"
#include "capi/generated/options/launch.hpp"
#include "capi/values/buffer.hpp"
#include "config/precision_name.hpp"
#include "kernels/thread_count.hpp"
#include "launch/environment_report.hpp"
#include "launch/function_launch.hpp"
#include "machine/processor_affinity.hpp"
#include "os/list_folder.hpp"
#include "os/process_use.hpp"
#include "os/running_calls.hpp"

namespace accel::capi {
namespace {

constexpr int32_t kMostRanksOfHost = 65536;

using LaunchFunction = Callback<accel_launch_fn>;

// Calls of accel_launch() in this process: a program that is started again knows by it which one it is started for.
std::atomic<int64_t> launch_calls{0};
std::atomic<bool> is_in_rank{false};

// A rank that was started as a program, for the call with this number.
struct StartedRank {
  int64_t call = 0;
  launch::LaunchedRank rank;
};

// Nothing for programs that were started by others: the variable is inherited by what a rank starts.
std::optional<StartedRank> started_rank() {
  const std::optional<std::string> value = environment_text(launch::kLaunchedVariable);
  if (!value) return std::nullopt;
  long parent = 0, call = 0;
  launch::LaunchedRank rank;
  const bool is_whole = std::sscanf(value->c_str(), "%ld:%ld:%d:%d:%d", &parent, &call, &rank.local_rank, &rank.report,
                                    &rank.release) == 5;
  if (!is_whole || parent != getppid()) return std::nullopt;
  return StartedRank{call, rank};
}

// The exit status.
int run_rank(const LaunchFunction& function, const launch::LaunchedRank& rank) {
  is_in_rank.store(true);
  for (const int descriptor : {rank.report, rank.release}) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  const uint64_t errors_before = thread_error().count;
  const accel_status_t status = function(rank.local_rank);
  const std::string message = status < 0 ? callback_message(status, errors_before, "of the launch") : "";
  std::fflush(nullptr);  // it may have to wait then
  launch::report_end(rank, status, message);
  return status < 0 ? 1 : 0;
}

void require_no_state() {
  require(!has_made_state(), Status::kInvalidState,
          "this process has made a state, which a fork cannot use; expected a fork before the first state, or "
          "accel_launch() with start_method ACCEL_START_PROGRAM");
}

int64_t num_threads() {
  try {
    return static_cast<int64_t>(list_folder("/proc/self/task").size());
  } catch (const Error&) {
    return 1;
  }
}

void require_forkable() {
  require_no_state();
  kernels::end_idle_threads();
  // Threads need a moment to end.
  for (const Deadline limit{Deadline::Milliseconds(500)}; num_threads() > 1 && !limit.passed();)
    std::this_thread::sleep_for(Deadline::Milliseconds(1));
  const int64_t threads = num_threads();
  require(threads == 1, Status::kInvalidState, "this process has ", threads,
          " threads, which a fork would lose; expected accel_launch() before others are started, or start_method "
          "ACCEL_START_PROGRAM");
}

void set_job_size(launch::LaunchOptions& job, const LaunchSettings& settings) {
  const int64_t processes = settings.num_processes, machines = settings.num_machines;
  require(processes % machines == 0, Status::kInvalidArgument, "num_processes is ", processes,
          "; expected a multiple of num_machines, which is ", machines);
  require(settings.machine_rank < machines, Status::kInvalidArgument, "machine_rank is ", settings.machine_rank.value,
          "; expected less than num_machines, which is ", machines);
  job.num_processes = static_cast<int>(processes);
  job.num_machines = static_cast<int>(machines);
  job.machine_rank = static_cast<int>(settings.machine_rank);
}

// Settings that the launch leaves open stay as this process's environment has them.
void set_variables(launch::LaunchOptions& job, const LaunchSettings& settings) {
  const bool forks = settings.start_method.value == StartMethod::kFork;
  job.variables.emplace_back("FORK_LAUNCHED", forks ? "1" : "0");
  if (!settings.main_process_ip.is_default()) job.variables.emplace_back("MASTER_ADDR", settings.main_process_ip.value);
  if (settings.mixed_precision.value)
    job.variables.emplace_back("ACCELERATE_MIXED_PRECISION", precision_name(*settings.mixed_precision));
  if (settings.rendezvous_timeout_ms.value)
    job.variables.emplace_back("ACCEL_TIMEOUT_MS", std::to_string(*settings.rendezvous_timeout_ms));
  if (settings.cpu.value) job.variables.emplace_back("ACCELERATE_USE_CPU", *settings.cpu ? "1" : "0");
}

launch::FunctionOptions launch_of(const LaunchSettings& settings, int64_t call, const LaunchFunction& function) {
  launch::FunctionOptions result;
  set_job_size(result.job, settings);
  set_variables(result.job, settings);
  const int64_t port = settings.main_process_port.value_or(settings.num_machines > 1 ? 29500 : 0);
  if (port != 0) result.job.main_process_port = static_cast<int>(port);
  if (settings.start_method.value == StartMethod::kFork) {
    require_forkable();
    result.body = [&function](const launch::LaunchedRank& rank) {
      accept_forked_off();
      return run_rank(function, rank);
    };
  }
  result.marker = text(getpid(), ':', call);
  result.max_restarts = static_cast<int>(settings.max_restarts);
  result.monitor_interval = Deadline::Milliseconds(settings.monitor_interval_ms);
  if (settings.timeout_ms.value) result.deadline.emplace(Deadline::Milliseconds(*settings.timeout_ms));
  result.job.output.line_prefix = settings.log_line_prefix_template;
  result.job.job_id = settings.job_id;
  result.job.output.log_dir = settings.log_dir;
  require(result.job.output.log_dir.empty() || result.job.output.line_prefix.empty(), Status::kInvalidArgument,
          "log_dir and log_line_prefix_template are both given; expected one: lines in files have no prefix");
  if (!result.job.output.log_dir.empty()) result.job.output.redirects = "3";  // all output, of all ranks
  return result;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_launch(const accel_launch_options_t* options, accel_launch_fn function,
                                           void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const LaunchFunction body(function, user_data, destroy);
    const auto settings = read_settings(check_pointer(options, "options"), "options");
    check_pointer(function, "function");
    require(!is_in_rank.load(), Status::kInvalidState,
            "this process is a rank of accel_launch() itself; expected a call outside of its functions");
    const int64_t call = launch_calls.fetch_add(1) + 1;
    if (const std::optional<StartedRank> started = started_rank(); started && call <= started->call) {
      if (call < started->call) return;
      _exit(run_rank(body, started->rank));
    }
    const auto failure = launch::FunctionLaunch(launch_of(settings, call, body)).run();
    if (!failure) return;
    throw_rank_error(failure->status < 0 ? failure->status : ACCEL_ERROR_PEER_LOST, failure->rank, failure->message);
  });
}

ACCEL_FUNCTION accel_status_t accel_prepare_fork(void) {
  return guarded(__func__, [] {
    require_no_state();
    kernels::end_idle_threads();
  });
}

// Not guarded(), which refuses such processes.
ACCEL_FUNCTION accel_status_t accel_accept_fork(void) {
  try {
    if (is_forked_off()) {
      require_no_state();
      require(calls_of_others() == 0, Status::kInvalidState,
              "this process was forked off while another thread was inside a call of the library; expected a fork "
              "beside no calls");
      accept_forked_off();
    }
    return ACCEL_OK;
  } catch (...) {
    return record_exception(__func__);
  }
}

ACCEL_FUNCTION accel_status_t accel_environment_report(accel_buffer_t* out) {
  return guarded(__func__, out, [] { return new_buffer(launch::environment_report_json()); });
}

ACCEL_FUNCTION accel_status_t accel_set_numa_affinity(int32_t local_process_index) {
  return guarded(__func__, [&] {
    const int64_t ranks = environment_integer("LOCAL_WORLD_SIZE").value_or(1);
    require(local_process_index >= 0 && local_process_index < kMostRanksOfHost, Status::kInvalidArgument,
            "local_process_index is ", local_process_index, "; expected a number from 0 to ", kMostRanksOfHost - 1);
    require(ranks >= 1 && ranks <= kMostRanksOfHost, Status::kInvalidArgument, "LOCAL_WORLD_SIZE is ", ranks,
            "; expected a number from 1 to ", kMostRanksOfHost);
    launch::set_numa_affinity(local_process_index, std::max(static_cast<int>(ranks), local_process_index + 1));
  });
}

}  // namespace accel::capi
