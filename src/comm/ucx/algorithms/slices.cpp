// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {

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

Slices slices_of_blocks(const Collective& collective, const Session& session) {
  Slices slices;
  slices.are_whole = traits_of(collective.header.kind).combines_whole();
  for (int peer = 0; peer < session.size(); peer++) slices.inputs.push_back(block_for(collective, peer));
  slices.results.resize(slices.inputs.size());
  slices.result = collective.incoming[0].data;
  return slices;
}

}  // namespace accel::comm::ucx
