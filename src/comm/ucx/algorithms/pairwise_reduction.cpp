// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/pairwise_reduction.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace accel::comm::ucx {

void reduce_with(int from, const Range& kept, First first, int to, const Range& given, const Collective& collective,
                 char* data, Session& session) {
  constexpr size_t kChunk = 512 << 10;  // is reduced while the next one arrives
  char* const arrived = session.buffers().chunks.reserve(kept.end - kept.start);
  std::vector<size_t> arrivals;
  for (size_t at = kept.start; at < kept.end; at += kChunk)
    arrivals.push_back(
        session.receive(from, arrived + (at - kept.start), std::min(kChunk, kept.end - at), Channel::kData));
  for (size_t at = given.start; at < given.end; at += kChunk)
    session.send(to, data + at, std::min(kChunk, given.end - at), Channel::kData);
  size_t next = 0;
  for (size_t at = kept.start; at < kept.end; at += kChunk) {
    session.wait(arrivals[next++]);
    const void* inputs[] = {data + at, arrived + (at - kept.start)};
    if (first == First::kTheirs) std::swap(inputs[0], inputs[1]);
    const size_t bytes = std::min(kChunk, kept.end - at);
    collective.combine(data + at, inputs, 2, static_cast<int64_t>(bytes / collective.element_size));
  }
  session.wait_all();
}

}  // namespace accel::comm::ucx
