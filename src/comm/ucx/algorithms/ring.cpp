// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/ring.hpp"

#include "comm/ucx/algorithms/pairwise_reduction.hpp"
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {

void all_reduce_by_ring(const Collective& collective, Session& session) {
  const int rank = session.rank(), size = session.size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const size_t bytes = collective.outgoing[0].bytes;
  char* const data = collective.incoming[0].data;
  begin_partial(collective, collective.incoming[0], collective.outgoing[0].data);

  for (int step = 0; step + 1 < size; step++) {
    const auto [sent, sent_end] = slice_of(bytes, (rank + size - step) % size, size);
    const auto [own, own_end] = slice_of(bytes, (rank + 2 * size - step - 1) % size, size);
    reduce_with(previous, {own, own_end}, First::kTheirs, next, {sent, sent_end}, collective, data, session);
  }
  for (int step = 0; step + 1 < size; step++) {
    const auto [sent, sent_end] = slice_of(bytes, (rank + size - step + 1) % size, size);
    const auto [own, own_end] = slice_of(bytes, (rank + size - step) % size, size);
    if (own_end > own) session.receive(previous, data + own, own_end - own, Channel::kResult);
    if (sent_end > sent) session.send(next, data + sent, sent_end - sent, Channel::kResult);
    session.wait_all();
  }
}

}  // namespace accel::comm::ucx
