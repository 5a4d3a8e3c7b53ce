// Collectives on trees of tensors and on plain values. @accelerate utils.operations
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// A leaf that is no tensor is a TYPE_MISMATCH in all but the object collectives, whatever the number of ranks; to ranks
// that pass tensors meanwhile it is a mismatch. Non-contiguous tensors are copied first. In debug mode the shapes of
// all ranks are compared first, and all of them stand in the error. With one rank the results of gather() share the
// memory of the input.
c10::IValue gather(Communicator& communicator, const c10::IValue& value);
// Of tensors whose dimension 0 may differ by rank.
c10::IValue gather_uneven(Communicator& communicator, const c10::IValue& value);
c10::IValue reduce(Communicator& communicator, const c10::IValue& value, Reduction reduction, double scale);
void broadcast(Communicator& communicator, const c10::IValue& value, int from);
// The ranks' tensors must have equally many dimensions.
c10::IValue pad_across_processes(Communicator& communicator, const c10::IValue& value, int64_t dim, double pad_index,
                                 bool pad_first);

// Any values that object_message.hpp can say. A list counts as its items.
c10::IValue gather_object(Communicator& communicator, const c10::IValue& object);
// The source rank's list, whose length all ranks must agree on.
c10::IValue broadcast_object_list(Communicator& communicator, const c10::IValue& objects, int from);
// Those of each rank, which may differ in length. Short ones take one message.
std::vector<std::string> gather_bytes(Communicator& communicator, const std::string& own);

// A row for each rank, on the CPU; `own` is one-dimensional and as long everywhere.
at::Tensor gather_rows(Communicator& communicator, const at::Tensor& own);

// Whether `ok` holds on every rank.
bool all_agree(Communicator& communicator, bool ok);

}  // namespace accel::comm
