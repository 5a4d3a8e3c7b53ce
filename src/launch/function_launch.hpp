// FunctionJob: ranks of this machine that run a function of the program that starts them, from their start to the end
// of the last one. It leaves the signals of the program alone and writes nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/interruption.hpp"
#include "launch/guardian.hpp"
#include "launch/options.hpp"
#include "launch/pipe.hpp"
#include "launch/rank_process.hpp"

namespace accel::launch {

// What a rank tells when its function has returned. It fits into one write to a pipe, which no other one divides.
struct RankReport {
  int32_t local_rank = 0;
  int32_t status = 0;  // negative: the function failed
  char message[1016] = {};
};

void write_report(int descriptor, int local_rank, int status, const std::string& message);

struct FunctionLaunch {
  LaunchOptions options;
  // Runs the function in the process of a rank and writes its report to the descriptor; returns the exit status. Empty:
  // the program is started again, with `marker` and ":DESCRIPTOR:LOCAL_RANK" in kLaunchedVariable.
  std::function<int(int local_rank, int descriptor)> body;
  std::string marker;
  int max_restarts = 0;
  Deadline::Milliseconds monitor_interval{100};
  std::optional<Deadline> deadline;
  std::string log_folder;  // empty: none
};

inline constexpr char kLaunchedVariable[] = "ACCEL_LAUNCHED";

// The rank that failed first.
struct FunctionFailure {
  int rank = 0;
  int status = 0;       // of its function; 0 if that has not returned
  std::string message;  // of the function, or how the process ended
};

class FunctionJob {
 public:
  explicit FunctionJob(FunctionLaunch launch);

  // Waits for all ranks. Nothing: all succeeded. Errors are Status::kTimeout and Status::kCancelled.
  std::optional<FunctionFailure> run();

 private:
  void start();
  RankCommand command_of(int local_rank) const;
  void watch();
  void wait_for_event();
  void read_reports();
  void collect_ended();
  void end_all();
  bool is_running() const;
  FunctionFailure describe_failure() const;
  std::string log_file(int local_rank) const;
  int global_rank(int local_rank) const;

  const FunctionLaunch launch_;
  const InterruptionFlag interruption_;
  const Guardian guardian_;
  int restarts_ = 0;
  int port_ = 0;
  std::string token_;
  Pipe reports_;
  std::vector<RankProcess> ranks_;
  std::vector<std::optional<RankReport>> reported_;  // of each rank
  std::optional<size_t> first_failure_;
  std::optional<Status> stopped_;  // ended by the caller
  std::optional<Deadline> grace_;  // after it those that still run are killed
};

}  // namespace accel::launch
