// SPDX-License-Identifier: Apache-2.0
// The launcher of another host, which ssh starts. It gets its orders through its input, and nothing of them is on a
// command line; it ends when that input ends. Its output is shown with the name of the host.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/plan/options.hpp"
#include "launch/ranks/guardian.hpp"
#include "launch/ranks/pipe.hpp"
#include "launch/ranks/process_end.hpp"

namespace accel::launch {

class RemoteLauncher {
 public:
  // Starts the launcher of options.hosts.listed[number].
  RemoteLauncher(const LaunchOptions& options, size_t number, const Guardian& guardian, const sigset_t& signal_mask);
  RemoteLauncher(RemoteLauncher&& other) noexcept;
  ~RemoteLauncher();

  void add_polled(std::vector<pollfd>& polled) const;  // kPolled entries
  static constexpr size_t kPolled = 3;
  void transfer(const pollfd* polled);

  void collect();
  bool is_running() const { return process_ > 0 && !end_; }
  const std::optional<ProcessEnd>& end() const { return end_; }
  // "host 1 (name)"
  const std::string& title() const { return title_; }

 private:
  struct Stream {
    FileDescriptor descriptor;
    std::string begun;  // a line without its end
  };

  bool show(Stream& stream, int target);  // false: nothing has come
  void write_message();

  std::string title_;
  pid_t process_ = 0;
  std::string message_;  // what of it is still to be sent
  FileDescriptor input_;
  Stream output_, errors_;
  std::optional<ProcessEnd> end_;
};

// The orders for a remote launcher.
std::string remote_message(const LaunchOptions& options, size_t number);

struct RemoteStart {
  std::vector<std::string> arguments;  // of `accel launch`
  int slots = 0;
  int num_processes = 0;
  std::string secret;
  int lifeline = -1;  // what was the input: it is closed when the connection ends
};
// Reads the message from the standard input, and takes over the folder and the environment. Only for a process with
// one thread.
RemoteStart take_remote_start();

}  // namespace accel::launch
