// SPDX-License-Identifier: Apache-2.0
// Exchange: what the ranks of a group do with a tensor in one direction of a parallel operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"
#include "parallel/regions/exchange_memory.hpp"

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

// An exchange under way.
struct StartedExchange {
  at::Tensor memory;  // that has the result when the work has ended; of a gather, the parts of the ranks
  std::shared_ptr<comm::Work> work;
  Exchange exchange;

  // Waits for the result.
  at::Tensor finish();
};

// Starts a sum, a gather or a reduce-scatter, of parts of one size. A sum is written over `input` if that is the only
// reference to its memory. Where `memory` is not null, what is sent is there.
StartedExchange start_exchange(at::Tensor input, const Exchange& exchange, comm::Communicator& group,
                               comm::RunsOn thread, ExchangeMemory* memory = nullptr);

}  // namespace accel::parallel
