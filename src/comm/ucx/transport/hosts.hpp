// SPDX-License-Identifier: Apache-2.0
// Host topology of a group: which ranks share memory. Data between hosts is sent in columns: rank i of each host
// exchanges with rank i of the others.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/ucx/transport/team.hpp"

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
  // There are as many columns as the smallest host has ranks.
  int columns() const { return static_cast<int>(columns_); }
  // This rank's column; empty if its index on the host is above that number.
  const Team& column() const { return column_; }

 private:
  std::vector<std::vector<int>> ranks_;
  std::vector<int> host_of_;
  size_t columns_;
  Team neighbours_, column_;
};

}  // namespace accel::comm::ucx
