// SPDX-License-Identifier: Apache-2.0
// Where the output of the ranks is.
#pragma once

#include <string>

namespace accel::launch {

struct OutputOptions {
  std::string log_dir;                     // a file for each rank in this folder; empty: none
  std::string tee = "0", redirects = "0";  // see launch/ranks/output_streams.hpp
  // Before each line that is shown, whose ranks are all then; ${role_name}, ${rank} and ${local_rank} stand for these.
  std::string line_prefix;
  // Which rank has the launcher's input and output: the last one of the job, or the first one of each host.
  bool is_of_last_rank = false;
  bool quiet = false;  // no messages of the launcher but errors
};

}  // namespace accel::launch
