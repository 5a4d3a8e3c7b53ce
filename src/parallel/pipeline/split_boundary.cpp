// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/split_boundary.hpp"

#include <algorithm>
#include <utility>

#include "comm/collective.hpp"
#include "comm/communicator.hpp"

namespace accel::parallel {
SplitBoundary::SplitBoundary(CommunicatorPtr tensor_ranks, at::IntArrayRef hosts)
    : tensor_ranks_(std::move(tensor_ranks)) {
  const auto size = static_cast<size_t>(tensor_ranks_->size());
  for (size_t first = 0; first < hosts.size(); first += size) {
    const auto of_rank = hosts.slice(first, size);
    const bool is_one = std::all_of(of_rank.begin(), of_rank.end(), [&](int64_t host) { return host == of_rank[0]; });
    hosts_.push_back(is_one ? of_rank[0] : -1);
  }
}

int64_t SplitBoundary::ranks(const PipelineShape& shape, int from, int to) const {
  if (tensor_ranks_ == nullptr) return 1;
  const int64_t sender = hosts_[static_cast<size_t>(shape.rank_of(from))];
  const int64_t receiver = hosts_[static_cast<size_t>(shape.rank_of(to))];
  return sender >= 0 && receiver >= 0 && sender != receiver ? tensor_ranks_->size() : 1;
}

at::Tensor SplitBoundary::own_part(const at::Tensor& tensor, int64_t ranks) const {
  const int64_t elements = sent_elements(tensor.numel(), static_cast<int64_t>(tensor.nbytes()), ranks);
  if (elements == tensor.numel()) return tensor;
  return tensor.view({-1}).narrow(0, elements * tensor_ranks_->rank(), elements);
}

void SplitBoundary::gather(const std::vector<at::Tensor>& parts, std::vector<at::Tensor>& whole) const {
  std::vector<comm::Collective> collectives;
  for (size_t index = 0; index < parts.size(); index++) {
    if (parts[index].numel() == whole[index].numel())
      whole[index] = parts[index];
    else
      collectives.push_back(comm::Collective::all_gather(parts[index], whole[index].view({-1})));
  }
  if (!collectives.empty()) tensor_ranks_->run(collectives);
}

}  // namespace accel::parallel
