#include "comm/ucx/slices.hpp"

#include <algorithm>

#include "comm/ucx/session.hpp"

namespace accel::comm::ucx {

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::pair<size_t, size_t> slice_of(size_t bytes, int number, int count) {
  constexpr size_t kLine = 64;
  const auto parts = static_cast<size_t>(count);
  const size_t slice = round_up((bytes + parts - 1) / parts, kLine);
  const size_t start = std::min(bytes, slice * static_cast<size_t>(number));
  return {start, std::min(bytes, start + slice)};
}

Slices slices_of_whole(const Collective& collective, const Session& session) {
  const int rank = session.rank(), size = session.size(), root = collective.header.root;
  const auto& input = collective.outgoing[0];
  const auto& output = collective.incoming[0];
  const bool wanted = root < 0 || root == rank;
  Slices slices;
  for (int peer = 0; peer < size; peer++) {
    const auto [start, end] = slice_of(input.bytes, peer, size);
    slices.inputs.push_back({input.data + start, end - start});
    slices.results.push_back(wanted ? Incoming{output.data + start, end - start} : Incoming{});
  }
  // A rank that is not the root keeps its tensor as it is.
  slices.result = wanted ? slices.results[rank].data : nullptr;
  slices.first_receiver = root < 0 ? 0 : root;
  slices.last_receiver = root < 0 ? size - 1 : root;
  return slices;
}

}  // namespace accel::comm::ucx
