// SPDX-License-Identifier: Apache-2.0
// Which streams of which ranks are meant by numbers as torchrun has them: "3", or "0:3,1:1" by local rank.
#pragma once

#include <string>

namespace accel::launch {

struct OutputStreams {
  bool out = false, error = false;
};

// The streams of one local rank. Status::kInvalidArgument, with the option's name, for anything else.
OutputStreams output_streams(const char* option, const std::string& written, int local_rank);

}  // namespace accel::launch
