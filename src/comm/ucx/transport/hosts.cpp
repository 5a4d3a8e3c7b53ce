// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/transport/hosts.hpp"

#include <algorithm>
#include <utility>

namespace accel::comm::ucx {

Hosts::Hosts(std::vector<std::vector<int>> ranks, int rank) : ranks_(std::move(ranks)), columns_(ranks_[0].size()) {
  size_t size = 0;
  for (const auto& host : ranks_) {
    size += host.size();
    columns_ = std::min(columns_, host.size());
  }
  host_of_.resize(size);
  for (size_t host = 0; host < ranks_.size(); host++)
    for (const int member : ranks_[host]) host_of_[static_cast<size_t>(member)] = static_cast<int>(host);

  neighbours_.ranks = ranks_[static_cast<size_t>(host_of(rank))];
  const auto place = std::find(neighbours_.ranks.begin(), neighbours_.ranks.end(), rank);
  neighbours_.position = static_cast<int>(place - neighbours_.ranks.begin());
  column_.position = host_of(rank);
  if (neighbours_.position >= columns()) return;
  for (const auto& host : ranks_) column_.ranks.push_back(host[static_cast<size_t>(neighbours_.position)]);
}

Hosts Hosts::of_single_ranks(int size, int rank) {
  std::vector<std::vector<int>> ranks;
  for (int member = 0; member < size; member++) ranks.push_back({member});
  return Hosts(std::move(ranks), rank);
}

}  // namespace accel::comm::ucx
