#include "comm/ucx/ring.hpp"

#include <algorithm>
#include <vector>

#include "comm/ucx/session.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {
namespace {

constexpr size_t kChunk = 512 << 10;  // is reduced while the next one arrives

}  // namespace

void all_reduce_by_ring(const Collective& collective, Session& session) {
  const int rank = session.rank(), size = session.size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const size_t bytes = collective.outgoing[0].bytes;
  char* const data = collective.incoming[0].data;
  copy_block(collective.incoming[0], collective.outgoing[0].data);
  char* const arrived = session.buffers().chunks.reserve(slice_of(bytes, 0, size).second);

  for (int step = 0; step + 1 < size; step++) {
    const auto [sent, sent_end] = slice_of(bytes, (rank + size - step) % size, size);
    const auto [own, own_end] = slice_of(bytes, (rank + 2 * size - step - 1) % size, size);
    std::vector<size_t> arrivals;
    for (size_t at = own; at < own_end; at += kChunk)
      arrivals.push_back(
          session.receive(previous, arrived + (at - own), std::min(kChunk, own_end - at), Channel::kData));
    for (size_t at = sent; at < sent_end; at += kChunk)
      session.send(next, data + at, std::min(kChunk, sent_end - at), Channel::kData);
    size_t chunk = 0;
    for (size_t at = own; at < own_end; at += kChunk) {
      session.wait(arrivals[chunk++]);
      const void* const inputs[] = {arrived + (at - own), data + at};
      const size_t length = std::min(kChunk, own_end - at);
      collective.reduce(data + at, inputs, 2, static_cast<int64_t>(length / collective.element_size));
    }
    session.wait_all();
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
