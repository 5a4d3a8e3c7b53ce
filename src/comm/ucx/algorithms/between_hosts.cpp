// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/between_hosts.hpp"

#include <algorithm>

#include "comm/ucx/algorithms/broadcast_tree.hpp"
#include "comm/ucx/algorithms/host_collective.hpp"
#include "comm/ucx/algorithms/message_collective.hpp"
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {
namespace {

// A part of the collective that another team works on: its own blocks, the same kind of elements, which are tensors no
// more where they are reduced.
Collective part_of(const Collective& collective, CollectiveKind kind, int members) {
  Collective part;
  part.header = collective.header;
  part.header.kind = kind;
  part.header.root = -1;
  part.outgoing.resize(static_cast<size_t>(members));
  part.incoming.resize(static_cast<size_t>(members));
  part.reduce = part.combine = collective.combine;
  part.element_size = collective.element_size;
  return part;
}

// Each rank of the host has one block, which all of them want.
void share_on_host(const Collective& collective, const Blocks<Incoming>& blocks, Session& session) {
  const Team& host = session.hosts().neighbours();
  Collective part = part_of(collective, CollectiveKind::kAllGather, host.size());
  const Incoming& own = blocks[static_cast<size_t>(host.position)];
  part.outgoing.assign(blocks.size(), {own.data, own.bytes});
  part.incoming = blocks;
  size_t largest = 0;
  for (const auto& block : blocks) largest = std::max(largest, block.bytes);
  const Session::Phase phase(session, host);
  move_on_host(part, largest, session);
}

}  // namespace

void reduce_whole_between_hosts(const Collective& collective, Session& session) {
  const Hosts& hosts = session.hosts();
  const Team& host = hosts.neighbours();
  const int root = collective.header.root, root_host = root < 0 ? -1 : hosts.host_of(root);
  const auto& input = collective.outgoing[0];
  const auto slice = [&](int position) {
    return position < hosts.columns() ? slice_of(input.bytes, position, hosts.columns()) : std::pair<size_t, size_t>();
  };
  const auto [start, end] = slice(host.position);
  const Incoming partial{session.buffers().partial.reserve(end - start), end - start};
  if (host.size() > 1) {
    Slices slices;
    for (int position = 0; position < host.size(); position++) {
      const auto [first, last] = slice(position);
      slices.inputs.push_back({input.data + first, last - first});
    }
    slices.results.resize(slices.inputs.size());
    slices.result = partial.data;
    const Session::Phase phase(session, host);
    reduce_on_host(collective, slices, session);
  } else {
    begin_partial(collective, partial, input.data + start);
  }

  if (partial.bytes > 0) {
    Collective part = part_of(collective, root < 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduce, 1);
    part.header.root = root_host;
    part.outgoing[0] = {partial.data, partial.bytes};
    if (root < 0 || root_host == hosts.own()) part.incoming[0] = partial;
    const Session::Phase phase(session, hosts.column());
    reduce_whole_by_messages(part, session);
  }

  if (root < 0) {
    Blocks<Incoming> results;
    for (int position = 0; position < host.size(); position++) {
      const auto [first, last] = slice(position);
      results.push_back({collective.incoming[0].data + first, last - first});
    }
    copy_block(results[static_cast<size_t>(host.position)], partial.data);
    if (host.size() > 1) share_on_host(collective, results, session);
  } else if (root_host == hosts.own()) {
    Collective part = part_of(collective, CollectiveKind::kGather, host.size());
    for (int position = 0; position < host.size(); position++) {
      const auto [first, last] = slice(position);
      if (host.ranks[position] == root) part.outgoing[position] = {partial.data, partial.bytes};
      if (session.rank() == root) part.incoming[position] = {collective.incoming[0].data + first, last - first};
    }
    const Session::Phase phase(session, host);
    exchange_blocks(part, 0, session);
  }
}

void reduce_scatter_between_hosts(const Collective& collective, Session& session) {
  const Hosts& hosts = session.hosts();
  const Team& host = hosts.neighbours();
  const size_t bytes = collective.incoming[0].bytes;
  char* const partials = session.buffers().partial.reserve(bytes * static_cast<size_t>(hosts.count()));
  Slices between;
  for (int other = 0; other < hosts.count(); other++) {
    Slices slices;
    for (const int rank : hosts.ranks(other)) slices.inputs.push_back(collective.outgoing[rank]);
    slices.results.resize(slices.inputs.size());
    slices.result = partials + bytes * static_cast<size_t>(other);
    between.inputs.push_back({slices.result, bytes});
    const Session::Phase phase(session, host);
    reduce_on_host(collective, slices, session);
  }
  between.result = collective.incoming[0].data;
  between.results.resize(between.inputs.size());
  const Session::Phase phase(session, hosts.column());
  reduce_by_messages(part_of(collective, CollectiveKind::kReduceScatter, hosts.count()), between, session);
}

void all_gather_between_hosts(const Collective& collective, Session& session) {
  const Hosts& hosts = session.hosts();
  const Team& column = hosts.column();
  Collective part = part_of(collective, CollectiveKind::kAllGather, column.size());
  for (int other = 0; other < column.size(); other++) {
    const auto rank = static_cast<size_t>(column.ranks[other]);
    part.outgoing[other] = collective.outgoing[rank];
    part.incoming[other] = collective.incoming[rank];
  }
  {
    const Session::Phase phase(session, column);
    exchange_blocks(part, 0, session);
  }
  for (int other = 0; other < hosts.count(); other++) {
    Blocks<Incoming> blocks;
    for (const int rank : hosts.ranks(other)) blocks.push_back(collective.incoming[rank]);
    share_on_host(collective, blocks, session);
  }
}

void broadcast_between_hosts(const Collective& collective, Session& session) {
  const Hosts& hosts = session.hosts();
  const Team& host = hosts.neighbours();
  const int root = collective.header.root, rank = session.rank();
  // The tree joins the root and the first ranks of the other hosts.
  Team heads;
  for (int other = 0; other < hosts.count(); other++)
    heads.ranks.push_back(hosts.host_of(root) == other ? root : hosts.ranks(other)[0]);
  heads.position = hosts.own();
  const int head = heads.ranks[static_cast<size_t>(heads.position)];
  const Incoming& target = collective.incoming[static_cast<size_t>(root)];  // nothing on the root
  const Outgoing block =
      rank == root ? collective.outgoing[static_cast<size_t>(rank)] : Outgoing{target.data, target.bytes};
  if (rank == head) {
    const Session::Phase phase(session, heads);
    broadcast_along_tree(block, target, hosts.host_of(root), session);
  }
  if (host.size() == 1) return;
  Collective part = part_of(collective, CollectiveKind::kBroadcast, host.size());
  for (int position = 0; position < host.size(); position++)
    if (rank == head)
      part.outgoing[position] = block;
    else if (host.ranks[position] == head)
      part.incoming[position] = target;
  const Session::Phase phase(session, host);
  move_on_host(part, block.bytes, session);
}

}  // namespace accel::comm::ucx
