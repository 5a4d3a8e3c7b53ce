// SPDX-License-Identifier: Apache-2.0
// In-place gather: an all_gather that leaves the tensors where they are, in memory that the ranks of a host map.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace accel::comm {

class Communicator;
class Work;

// Whether Communicator::zeros() on the CPU are memory that all ranks map. The same on all ranks.
bool shares_memory(const Communicator& group);

// Where the group shares memory. One tensor of each rank, like `own`: it shows the memory of that rank if those of all
// are large and from zeros(), and otherwise is a copy. No rank may change its tensor before all have read it, which is
// for the caller to know. Recorded as an all_gather, with the bytes that a copy would have.
std::shared_ptr<Work> start_in_place_gather(Communicator& group, const at::Tensor& own);
// By rank. Waits until it has ended; throws its error.
std::vector<at::Tensor> gathered_in_place(const Work& work);

}  // namespace accel::comm
