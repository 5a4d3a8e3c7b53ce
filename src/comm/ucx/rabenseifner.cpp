#include "comm/ucx/rabenseifner.hpp"

#include <algorithm>
#include <vector>

#include "comm/ucx/session.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kChunk = 512 << 10;  // is reduced while the next one arrives

// Bytes of the tensor: those of some neighbouring slices.
struct Range {
  size_t start, end;
};

Range range_of(size_t bytes, int first, int count, int size) {
  return {slice_of(bytes, first, size).first, slice_of(bytes, first + count - 1, size).second};
}

// Sends `given` and reduces `kept` with what the peer has of it.
void reduce_with(int peer, const Range& kept, const Range& given, const Collective& collective, char* data,
                 Session& session) {
  char* const arrived = session.buffers().chunks.reserve(kept.end - kept.start);
  std::vector<size_t> arrivals;
  for (size_t at = kept.start; at < kept.end; at += kChunk)
    arrivals.push_back(
        session.receive(peer, arrived + (at - kept.start), std::min(kChunk, kept.end - at), Channel::kData));
  for (size_t at = given.start; at < given.end; at += kChunk)
    session.send(peer, data + at, std::min(kChunk, given.end - at), Channel::kData);
  size_t next = 0;
  for (size_t at = kept.start; at < kept.end; at += kChunk) {
    session.wait(arrivals[next++]);
    const char* const own = data + at;
    const char* const theirs = arrived + (at - kept.start);
    const void* const inputs[] = {session.rank() < peer ? own : theirs, session.rank() < peer ? theirs : own};
    const size_t bytes = std::min(kChunk, kept.end - at);
    collective.reduce(data + at, inputs, 2, static_cast<int64_t>(bytes / collective.element_size));
  }
  session.wait_all();
}

}  // namespace

void all_reduce_by_halving(const Collective& collective, Session& session) {
  const int rank = session.rank(), size = session.size();
  const size_t bytes = collective.outgoing[0].bytes;
  char* const data = collective.incoming[0].data;
  copy_block(collective.incoming[0], collective.outgoing[0].data);
  int first = 0;
  for (int half = size / 2; half > 0; half /= 2) {
    const auto lower = range_of(bytes, first, half, size), upper = range_of(bytes, first + half, half, size);
    const bool keeps_lower = (rank & half) == 0;
    reduce_with(rank ^ half, keeps_lower ? lower : upper, keeps_lower ? upper : lower, collective, data, session);
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
