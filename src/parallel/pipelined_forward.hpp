// SPDX-License-Identifier: Apache-2.0
// Pipelined forward: a batch passes through the stages of a model without gradients, chunk by chunk, so that all stages
// compute at once.
//
// Note: rounds. What the last stage returns for a chunk is what the first one gets for it in the next round: so a model
// that generates passes its tokens on, and while one chunk is in a stage another one is in the next. A chunk is at its
// end when a stage returns no value (None), which is passed on in place of the rest.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "parallel/gradient_exchange.hpp"

namespace accel::parallel {

// Into how many chunks the rows of a batch are cut.
struct RowCut {
  int64_t chunks = 1;      // at most, as no chunk is empty; their sizes differ by one
  int64_t chunk_rows = 0;  // not 0: chunks of exactly that many rows, as many as there are
};

using ForwardStage = std::function<c10::IValue(const c10::IValue& input)>;

// Collective. `batch` is that of the first rank; the others' are ignored. Returns on the last rank the outputs of the
// last round, joined, or None if a chunk came to its end before; on the other ranks None. An error of one rank is
// thrown on all.
c10::IValue run_forward_pipeline(const CommunicatorPtr& ranks, c10::Device device, const c10::IValue& batch,
                                 const RowCut& cut, int64_t rounds, const ForwardStage& stage);

}  // namespace accel::parallel
