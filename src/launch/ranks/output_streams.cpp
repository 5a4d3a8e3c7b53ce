// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/output_streams.hpp"

#include <optional>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"

namespace accel::launch {

OutputStreams output_streams(const char* option, const std::string& written, int local_rank) {
  OutputStreams found;
  for (const std::string& part : split_text(written)) {
    const size_t colon = part.find(':');
    const std::optional<int64_t> rank = colon == std::string::npos ? local_rank : parse_integer(part.substr(0, colon));
    const std::optional<int64_t> streams = parse_integer(colon == std::string::npos ? part : part.substr(colon + 1));
    require(rank && *rank >= 0 && streams && *streams >= 0 && *streams <= 3, Status::kInvalidArgument, option, " is '",
            written, "'; expected 0 for none, 1 for stdout, 2 for stderr, 3 for both, or RANK:NUMBER with commas");
    if (*rank == local_rank) found = {(*streams & 1) != 0, (*streams & 2) != 0};
  }
  return found;
}

}  // namespace accel::launch
