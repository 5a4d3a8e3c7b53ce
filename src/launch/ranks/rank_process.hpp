// SPDX-License-Identifier: Apache-2.0
// A rank as a process of this machine, in its own process group, so that its children can be ended with it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/ranks/guardian.hpp"
#include "launch/ranks/pipe.hpp"
#include "launch/ranks/process_end.hpp"
#include "launch/ranks/rank_output.hpp"

namespace accel::launch {

struct RankCommand {
  std::vector<std::string> program;
  std::vector<std::string> environment;
  bool is_main = false;  // shares the launcher's input, and its output if that is neither logged nor shown by it
  sigset_t signal_mask;  // what the program is to start with
  std::string file;      // the program's; empty: it is found by its name
  std::string log_file, log_header;  // is appended to, first the header; empty: none
  OutputRelays* shown = nullptr;     // of the launcher; null: it shows nothing of what it reads
  bool shows_stdout = false, shows_stderr = false;
  std::string prefix;          // of each line that is shown
  std::vector<int> inherited;  // descriptors that the program gets
  // Instead of the program: what a copy of this process does; it returns the exit status. The copy closes the
  // descriptors `not_inherited`, as far as they are ones.
  std::function<int()> function;
  std::vector<int> not_inherited;
};

class RankProcess {
 public:
  // Starts the process. If the program cannot be executed, its errno is written to the pipe `failures`, which is closed
  // otherwise when all processes that have it run their programs.
  RankProcess(const RankCommand& command, const Guardian& guardian, const Pipe& failures);
  RankProcess(RankProcess&& other) noexcept = default;
  // Kills the process, if it still runs, and its children.
  ~RankProcess();

  pid_t process() const { return process_.number; }
  bool is_running() const { return process_.number > 0 && !end_; }
  const std::optional<ProcessEnd>& end() const { return end_; }

  // To all processes of the group.
  void send(int signal) const;

  // Checks whether the process has ended, and then ends children that it left behind.
  void collect();

  void read_output() { output_.read_all(); }
  void add_polled(std::vector<pollfd>& polled) const { output_.add_polled(polled); }
  const pollfd* read_polled(const pollfd* polled) { return output_.read_polled(polled); }
  std::vector<std::string> last_lines(size_t most) const { return output_.last_lines(most); }

 private:
  struct Process {
    Process() = default;
    Process(Process&& other) noexcept : number(std::exchange(other.number, 0)) {}
    pid_t number = 0;
  };

  Process process_;
  RankOutput output_;
  std::optional<ProcessEnd> end_;
};

}  // namespace accel::launch
