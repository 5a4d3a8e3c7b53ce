// SPDX-License-Identifier: Apache-2.0
// Collectives on trees of tensors and on plain values. @accelerate utils.operations
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/rounds.hpp"

namespace accel::comm {

// The collectives below as rounds, for run() and start().
namespace rounds {

// Except in the object collectives, a leaf that is not a tensor is a TYPE_MISMATCH, whatever the number of ranks; ranks
// that passed tensors get a mismatch. Non-contiguous tensors are copied first. In debug mode the shapes of all ranks
// are compared first, and the error lists them. With one rank the results of gather() share the memory of the input.
Round gather(const Communicator& communicator, const c10::IValue& value);
// Gathers tensors whose dimension 0 may differ by rank.
Round gather_uneven(const Communicator& communicator, const c10::IValue& value);
Round reduce(const Communicator& communicator, const c10::IValue& value, ReduceOp reduction, double scale);
// In place.
Round broadcast(const Communicator& communicator, const c10::IValue& value, int from);
// The ranks' tensors must have equally many dimensions.
Round pad_across_processes(const Communicator& communicator, const c10::IValue& value, int64_t dim, double pad_index,
                           bool pad_first);

// The tensor of the one rank that has a defined one, of which the others know nothing.
Round copy_tensor_to_devices(const Communicator& communicator, const at::Tensor& tensor);

// Any values that object_message.hpp can encode. A list is gathered as its items.
Round gather_object(const Communicator& communicator, const c10::IValue& object);
// Replaces the list by the source rank's; it must have the same length on all ranks.
Round broadcast_object_list(const Communicator& communicator, const c10::IValue& objects, int from);

// The text of each rank; lengths may differ. Short ones take one message.
Round gather_bytes(const Communicator& communicator, const std::string& own,
                   const std::function<Outcome(const std::vector<std::string>&)>& then);
// One row per rank, on the CPU; `own` is one-dimensional and has the same length on all ranks.
Round gather_rows(const Communicator& communicator, const at::Tensor& own,
                  const std::function<Outcome(const at::Tensor&)>& then, bool is_last = true);

// Continues with the result of a call.
Round then(Round round, const std::function<c10::IValue(const c10::IValue&)>& function);

}  // namespace rounds

inline c10::IValue gather(Communicator& communicator, const c10::IValue& value) {
  return run(communicator, rounds::gather(communicator, value));
}

inline c10::IValue gather_uneven(Communicator& communicator, const c10::IValue& value) {
  return run(communicator, rounds::gather_uneven(communicator, value));
}

inline c10::IValue reduce(Communicator& communicator, const c10::IValue& value, ReduceOp reduction, double scale) {
  return run(communicator, rounds::reduce(communicator, value, reduction, scale));
}

inline void broadcast(Communicator& communicator, const c10::IValue& value, int from) {
  run(communicator, rounds::broadcast(communicator, value, from));
}

inline c10::IValue pad_across_processes(Communicator& communicator, const c10::IValue& value, int64_t dim,
                                        double pad_index, bool pad_first) {
  return run(communicator, rounds::pad_across_processes(communicator, value, dim, pad_index, pad_first));
}

inline c10::IValue gather_object(Communicator& communicator, const c10::IValue& object) {
  return run(communicator, rounds::gather_object(communicator, object));
}

inline c10::IValue broadcast_object_list(Communicator& communicator, const c10::IValue& objects, int from) {
  return run(communicator, rounds::broadcast_object_list(communicator, objects, from));
}

at::Tensor gather_rows(Communicator& communicator, const at::Tensor& own);

}  // namespace accel::comm
