// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/algorithms/broadcast_tree.hpp"

#include <algorithm>
#include <vector>

namespace accel::comm::ucx {
namespace {

constexpr size_t kChunk = 512 << 10;

// The links of a rank, counted from the root.
struct Links {
  int parent = 0;
  std::vector<int> children;
};

// Binomial: the fewest rounds. The children of a rank have one more bit below its lowest one; the largest part first.
Links links_in_binomial_tree(int rank, int size) {
  Links links;
  int lowest = 1;
  while (lowest < size && (rank & lowest) == 0) lowest *= 2;
  links.parent = rank & ~lowest;
  for (int bit = lowest / 2; bit > 0; bit /= 2)
    if (rank + bit < size) links.children.push_back(rank + bit);
  return links;
}

// A chain: each sends everything once, so many chunks are through sooner.
Links links_in_chain(int rank, int size) {
  Links links;
  links.parent = rank - 1;
  if (rank + 1 < size) links.children.push_back(rank + 1);
  return links;
}

}  // namespace

void broadcast_along_tree(const Outgoing& block, const Incoming& target, int root, Session& session) {
  const int size = session.size(), rank = (session.rank() + size - root) % size;
  const auto absolute = [&](int counted_from_root) { return (counted_from_root + root) % size; };
  const size_t bytes = block.bytes, chunks = (bytes + kChunk - 1) / kChunk;
  size_t rounds = 0;
  while ((size_t{1} << rounds) < static_cast<size_t>(size)) rounds++;
  // The chain takes `size - 2` chunks longer than to send everything once, the tree sends everything `rounds` times.
  const bool chain = rounds > 1 && chunks * (rounds - 1) > static_cast<size_t>(size - 2);
  const auto links = chain ? links_in_chain(rank, size) : links_in_binomial_tree(rank, size);

  const auto length = [bytes](size_t k) { return std::min(kChunk, bytes - k * kChunk); };
  std::vector<size_t> arrivals;
  for (size_t k = 0; rank != 0 && k < chunks; k++)
    arrivals.push_back(session.receive(absolute(links.parent), target.data + k * kChunk, length(k), Channel::kData));
  for (size_t k = 0; k < chunks; k++) {
    if (rank != 0) session.wait(arrivals[k]);
    for (const int child : links.children)
      session.send(absolute(child), block.data + k * kChunk, length(k), Channel::kData);
  }
  session.wait_all();
}

}  // namespace accel::comm::ucx
