// One rank as a process of this machine, in a process group of its own: what it starts can be ended with it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/guardian.hpp"
#include "launch/output_tail.hpp"
#include "launch/pipe.hpp"
#include "launch/process_end.hpp"

namespace accel::launch {

struct RankCommand {
  std::vector<std::string> program;
  std::vector<std::string> environment;
  bool is_first = false;  // shares the launcher's input and output; the output of the others is kept
  sigset_t signal_mask;   // what the program is to start with
};

class RankProcess {
 public:
  // Starts the process. When the program cannot be executed, its errno comes out of the pipe `failures`, which
  // otherwise gives nothing and ends once all processes that have the pipe run their programs.
  RankProcess(const RankCommand& command, const Guardian& guardian, const Pipe& failures);
  RankProcess(RankProcess&& other) noexcept = default;
  // One that still runs is killed with all that it started.
  ~RankProcess();

  bool is_running() const { return process_.number > 0 && !end_; }
  const std::optional<ProcessEnd>& end() const { return end_; }

  // For all processes of the group.
  void send(int signal) const;

  // Takes note of the end if there is one. What the rank has started and left behind is ended too.
  void collect();

  // The descriptor to poll; negative when there is nothing to read.
  int output() const { return output_.number(); }
  void read_output();
  std::vector<std::string> last_lines(size_t most) const { return tail_.last_lines(most); }

 private:
  struct Process {
    Process() = default;
    Process(Process&& other) noexcept : number(std::exchange(other.number, 0)) {}
    pid_t number = 0;
  };

  Process process_;
  FileDescriptor output_;
  OutputTail tail_;
  std::optional<ProcessEnd> end_;
};

}  // namespace accel::launch
