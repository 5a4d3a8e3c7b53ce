// Exchange: what the ranks of a group do with a tensor in one direction of a parallel operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"

namespace accel::parallel {

using RankGroup = std::shared_ptr<comm::Communicator>;

// The part that this rank has of a dimension of size `whole`.
struct Share {
  int64_t begin = 0, size = 0;
};
Share share_of(int64_t whole, int64_t rank, int64_t ranks);

enum class ExchangeKind { kNothing, kSum, kGather, kOwnPart, kReduceScatter, kAllToAll };

struct Exchange {
  ExchangeKind kind = ExchangeKind::kNothing;
  int64_t dim = 0;    // which is gathered or of which a part is taken; of an all-to-all, of which a part is taken
  int64_t join = 0;   // of an all-to-all, which is gathered
  int64_t whole = 0;  // size of the dimension that is gathered
};

// The result of the exchange on this rank.
at::Tensor run_exchange(const at::Tensor& input, const Exchange& exchange, comm::Communicator& group);

}  // namespace accel::parallel
