// SPDX-License-Identifier: Apache-2.0
// The output of one rank: the end of what the launcher reads of it is saved, logged, and shown with a prefix.
#pragma once

#include <poll.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "launch/ranks/output_relay.hpp"
#include "launch/ranks/output_tail.hpp"
#include "launch/ranks/pipe.hpp"

namespace accel::launch {

struct RankOutputPlan {
  bool is_inherited = false;  // the launcher's stdout and stderr are the rank's; then there is nothing to read
  std::string log_file;       // is appended to; empty: none
  std::string log_header;     // comes first
  OutputRelays* shown = nullptr;
  bool shows_stdout = false, shows_stderr = false;
  std::string prefix;  // of each line that is shown, whose lines are whole then
};

class RankOutput {
 public:
  RankOutput() = default;
  // Opens the log, which only the user may read. Status::kIo if it cannot be.
  explicit RankOutput(RankOutputPlan plan);

  // For the new process, which has none of the others: what becomes its stdout and stderr; negative: the launcher's.
  int child_stdout() const { return streams_[0].pipe.write_end.number(); }
  int child_stderr() const { return is_one_pipe() ? child_stdout() : streams_[1].pipe.write_end.number(); }
  void close_child_ends();

  // At most one for each stream, and always as many.
  void add_polled(std::vector<pollfd>& polled) const;
  const pollfd* read_polled(const pollfd* polled);
  // Reads all output that has come, even when its reader is full.
  void read_all();

  std::vector<std::string> last_lines(size_t most) const { return tail_.last_lines(most); }

 private:
  struct Stream {
    Pipe pipe;
    std::string line;  // its end has not come yet
  };

  bool is_one_pipe() const { return plan_.shown == nullptr || (!plan_.shows_stdout && !plan_.shows_stderr); }
  OutputRelay* relay_of(size_t stream) const;
  bool may_read(size_t stream) const;
  void read(size_t stream, bool is_last);
  void take(size_t stream, std::string_view text);
  void show(size_t stream, std::string_view text);
  void end_line(size_t stream);

  RankOutputPlan plan_{true, "", "", nullptr, false, false, ""};
  std::array<Stream, 2> streams_;
  FileDescriptor log_;
  OutputTail tail_;
};

}  // namespace accel::launch
