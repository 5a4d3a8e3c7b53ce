// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/rabenseifner.hpp"

#include "comm/ucx/algorithms/pairwise_reduction.hpp"
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {
namespace {

// Some neighbouring slices.
Range range_of(size_t bytes, int first, int count, int size) {
  return {slice_of(bytes, first, size).first, slice_of(bytes, first + count - 1, size).second};
}

}  // namespace

void all_reduce_by_halving(const Collective& collective, Session& session) {
  const int rank = session.rank(), size = session.size();
  const size_t bytes = collective.outgoing[0].bytes;
  char* const data = collective.incoming[0].data;
  begin_partial(collective, collective.incoming[0], collective.outgoing[0].data);
  int first = 0;
  for (int half = size / 2; half > 0; half /= 2) {
    const auto lower = range_of(bytes, first, half, size), upper = range_of(bytes, first + half, half, size);
    const bool keeps_lower = (rank & half) == 0;
    const int peer = rank ^ half;
    reduce_with(peer, keeps_lower ? lower : upper, rank < peer ? First::kOwn : First::kTheirs, peer,
                keeps_lower ? upper : lower, collective, data, session);
    if (!keeps_lower) first += half;
  }
  for (int half = 1; half < size; half *= 2) {
    const auto own = range_of(bytes, first, half, size), theirs = range_of(bytes, first ^ half, half, size);
    if (theirs.end > theirs.start)
      session.receive(rank ^ half, data + theirs.start, theirs.end - theirs.start, Channel::kResult);
    if (own.end > own.start) session.send(rank ^ half, data + own.start, own.end - own.start, Channel::kResult);
    session.wait_all();
    first &= ~half;
  }
}

}  // namespace accel::comm::ucx
