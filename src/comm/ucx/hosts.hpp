// Which ranks of a group share memory. What goes between hosts goes in columns: a rank that stands in place i on its
// host works with those in place i on the others.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/ucx/team.hpp"

namespace accel::comm::ucx {

class Hosts {
 public:
  // `ranks` lists those of each host.
  Hosts(std::vector<std::vector<int>> ranks, int rank);
  // Ranks that share no memory: each is a host of its own.
  static Hosts of_single_ranks(int size, int rank);

  int count() const { return static_cast<int>(ranks_.size()); }
  bool hold_single_ranks() const { return host_of_.size() == ranks_.size(); }
  bool hold_equally_many() const { return columns_ * ranks_.size() == host_of_.size(); }
  const std::vector<int>& ranks(int host) const { return ranks_[static_cast<size_t>(host)]; }
  int own() const { return column_.position; }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }

  // The ranks of this rank's host.
  const Team& neighbours() const { return neighbours_; }
  // As many columns as the smallest host has ranks.
  int columns() const { return static_cast<int>(columns_); }
  // This rank's; of no ranks where its place is above that.
  const Team& column() const { return column_; }

 private:
  std::vector<std::vector<int>> ranks_;
  std::vector<int> host_of_;
  size_t columns_;
  Team neighbours_, column_;
};

}  // namespace accel::comm::ucx
