// SPDX-License-Identifier: Apache-2.0
// Section 4: collectives, blocking and asynchronous.
#include <algorithm>
#include <chrono>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/metrics.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/value.hpp"
#include "comm/collectives.hpp"

namespace accel::capi {
namespace {

static_assert(static_cast<int32_t>(comm::ReduceOp::kSum) == ACCEL_REDUCE_SUM &&
              static_cast<int32_t>(comm::ReduceOp::kMean) == ACCEL_REDUCE_MEAN &&
              static_cast<int32_t>(comm::ReduceOp::kMin) == ACCEL_REDUCE_MIN &&
              static_cast<int32_t>(comm::ReduceOp::kMax) == ACCEL_REDUCE_MAX &&
              static_cast<int32_t>(comm::ReduceOp::kProduct) == ACCEL_REDUCE_PRODUCT &&
              static_cast<int32_t>(comm::ReduceOp::kAnd) == ACCEL_REDUCE_AND &&
              static_cast<int32_t>(comm::ReduceOp::kOr) == ACCEL_REDUCE_OR &&
              static_cast<int32_t>(comm::ReduceOp::kXor) == ACCEL_REDUCE_XOR);

// The group of a collective.
using RanksOf = const std::shared_ptr<comm::Communicator>& (*)(const state::State& state);
const std::shared_ptr<comm::Communicator>& all_ranks(const state::State& state) { return state.communicator(); }
const std::shared_ptr<comm::Communicator>& data_ranks(const state::State& state) {
  return state.groups().data_parallel();
}

const std::shared_ptr<comm::Communicator>& communicator_of(accel_state_t* state, RanksOf ranks = all_ranks) {
  return ranks(accelerator_of(state)->state());
}

comm::ReduceOp to_reduction(accel_reduction_t reduction) { return static_cast<comm::ReduceOp>(reduction); }

// Each collective is one function below: it checks its arguments and returns a function that posts a round (on trees)
// or a collective (on tensors) to a group, so that errors of the group become errors of the work.

template <typename Make>
comm::Round round_of(const Make& make, const comm::Communicator& communicator) {
  if constexpr (std::is_same_v<decltype(make(communicator)), comm::Collective>)
    return comm::Round({make(communicator)}, [](const std::exception_ptr& error) -> comm::Outcome {
      comm::rethrow(error);
      return {};
    });
  else
    return make(communicator);
}

// Blocking, without a result.
template <typename Prepare>
accel_status_t run(const char* function, accel_state_t* state, const Prepare& prepare) {
  return guarded(function, [&] {
    comm::Communicator& communicator = *communicator_of(state);
    const auto make = prepare();
    if constexpr (std::is_same_v<decltype(make(communicator)), comm::Collective>)
      communicator.run(make(communicator));
    else
      comm::run(communicator, make(communicator));
  });
}

// Blocking: tree in, tree out.
template <typename Prepare>
accel_status_t run(const char* function, accel_state_t* state, accel_value_t* out, const Prepare& prepare,
                   RanksOf ranks = all_ranks) {
  return guarded(function, out, [&] {
    comm::Communicator& communicator = *communicator_of(state, ranks);
    const auto make = prepare();
    return from_ivalue(comm::run(communicator, make(communicator)));
  });
}

template <typename Prepare>
accel_status_t start(const char* function, accel_state_t* state, accel_work_t** out, const Prepare& prepare,
                     RanksOf ranks = all_ranks) {
  return guarded(function, [&] {
    const auto communicator = communicator_of(state, ranks);
    const auto make = prepare();
    check_pointer(out, "out_work");
    auto work = comm::start(communicator, [&] { return round_of(make, *communicator); });
    *out = std::make_unique<accel_work>(std::move(work), *communicator).release();
  });
}

c10::IValue tree_of(const accel_value_t* value, const char* name) {
  return to_ivalue(*check_pointer(value, name), name);
}

using Communicator = const comm::Communicator&;

auto gather(const accel_value_t* value) {
  return [tree = tree_of(value, "value")](Communicator group) { return comm::rounds::gather(group, tree); };
}

auto gather_uneven(const accel_value_t* value) {
  return [tree = tree_of(value, "value")](Communicator group) { return comm::rounds::gather_uneven(group, tree); };
}

// Uses the loader's batch at the time of the call. Ranks that read the same data count once.
auto gather_for_metrics(const accel_state_t* state, const accel_value_t* value) {
  return [tree = tree_of(value, "value"),
          batch = accelerator::batch_in_hand(*accelerator_of(state)->state().gradient_state())](Communicator group) {
    return accelerator::metrics_round(group, tree, batch);
  };
}

auto gather_object_for_metrics(const accel_state_t* state, const accel_value_t* items) {
  return [tree = tree_of(items, "items"),
          batch = accelerator::batch_in_hand(*accelerator_of(state)->state().gradient_state())](Communicator group) {
    return accelerator::object_metrics_round(group, tree, batch);
  };
}

auto gather_object(const accel_value_t* object) {
  return [tree = tree_of(object, "object")](Communicator group) { return comm::rounds::gather_object(group, tree); };
}

auto reduce(const accel_value_t* value, accel_reduction_t reduction, double scale) {
  return [tree = tree_of(value, "value"), reduction, scale](Communicator group) {
    return comm::rounds::reduce(group, tree, to_reduction(reduction), scale);
  };
}

auto broadcast(const accel_value_t* value, int32_t from) {
  return
      [tree = tree_of(value, "value"), from](Communicator group) { return comm::rounds::broadcast(group, tree, from); };
}

auto broadcast_object_list(const accel_value_t* objects, int32_t from) {
  return [tree = tree_of(objects, "objects"), from](Communicator group) {
    return comm::rounds::broadcast_object_list(group, tree, from);
  };
}

auto copy_tensor_to_devices(const accel_tensor_t* tensor) {
  return [tensor = tensor == nullptr ? at::Tensor() : check(tensor, "tensor").tensor](Communicator group) {
    return comm::rounds::copy_tensor_to_devices(group, tensor);
  };
}

auto pad_across_processes(const accel_value_t* value, int64_t dim, double pad_index, bool pad_first) {
  return [tree = tree_of(value, "value"), dim, pad_index, pad_first](Communicator group) {
    return comm::rounds::pad_across_processes(group, tree, dim, pad_index, pad_first);
  };
}

auto all_reduce(accel_tensor_t* tensor, accel_reduction_t reduction) {
  return [tensor = check(tensor, "tensor").tensor, reduction](Communicator) {
    return comm::Collective::all_reduce(tensor, to_reduction(reduction));
  };
}

auto all_gather(const accel_tensor_t* input, accel_tensor_t* output) {
  return [input = check(input, "input").tensor, output = check(output, "output").tensor](Communicator) {
    return comm::Collective::all_gather(input, output);
  };
}

auto reduce_scatter(const accel_tensor_t* input, accel_reduction_t reduction, accel_tensor_t* output) {
  return [input = check(input, "input").tensor, reduction, output = check(output, "output").tensor](Communicator) {
    return comm::Collective::reduce_scatter(input, to_reduction(reduction), output);
  };
}

auto all_to_all(const accel_tensor_t* input, accel_tensor_t* output) {
  return [input = check(input, "input").tensor, output = check(output, "output").tensor](Communicator) {
    return comm::Collective::all_to_all(input, output);
  };
}

auto scatter(const accel_tensor_t* input, int32_t from, accel_tensor_t* output) {
  return [input = input == nullptr ? at::Tensor() : check(input, "input").tensor, from,
          output = check(output, "output").tensor](Communicator) {
    return comm::Collective::scatter(input, from, output);
  };
}

auto barrier() {
  return [](Communicator) { return comm::Collective::barrier(); };
}

// Sends and receives are not ordered with collectives.
accel_status_t start_message(const char* function, accel_state_t* state, accel_work_t** out,
                             const std::function<comm::Collective()>& message) {
  return guarded(function, [&] {
    comm::Communicator& communicator = *communicator_of(state);
    check_pointer(out, "out_work");
    *out = std::make_unique<accel_work>(communicator.start(message()), communicator).release();
  });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_gather(accel_state_t* state, const accel_value_t* value, accel_value_t* out) {
  return run(__func__, state, out, [&] { return gather(value); });
}

ACCEL_FUNCTION accel_status_t accel_gather_async(accel_state_t* state, const accel_value_t* value,
                                                 accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return gather(value); });
}

ACCEL_FUNCTION accel_status_t accel_gather_uneven(accel_state_t* state, const accel_value_t* value,
                                                  accel_value_t* out) {
  return run(__func__, state, out, [&] { return gather_uneven(value); });
}

ACCEL_FUNCTION accel_status_t accel_gather_uneven_async(accel_state_t* state, const accel_value_t* value,
                                                        accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return gather_uneven(value); });
}

ACCEL_FUNCTION accel_status_t accel_gather_for_metrics(accel_state_t* state, const accel_value_t* value,
                                                       accel_value_t* out) {
  return run(
      __func__, state, out, [&] { return gather_for_metrics(state, value); }, data_ranks);
}

ACCEL_FUNCTION accel_status_t accel_gather_for_metrics_async(accel_state_t* state, const accel_value_t* value,
                                                             accel_work_t** out_work) {
  return start(
      __func__, state, out_work, [&] { return gather_for_metrics(state, value); }, data_ranks);
}

ACCEL_FUNCTION accel_status_t accel_gather_object_for_metrics(accel_state_t* state, const accel_value_t* items,
                                                              accel_value_t* out) {
  return run(
      __func__, state, out, [&] { return gather_object_for_metrics(state, items); }, data_ranks);
}

ACCEL_FUNCTION accel_status_t accel_gather_object_for_metrics_async(accel_state_t* state, const accel_value_t* items,
                                                                    accel_work_t** out_work) {
  return start(
      __func__, state, out_work, [&] { return gather_object_for_metrics(state, items); }, data_ranks);
}

ACCEL_FUNCTION accel_status_t accel_gather_object(accel_state_t* state, const accel_value_t* object,
                                                  accel_value_t* out) {
  return run(__func__, state, out, [&] { return gather_object(object); });
}

ACCEL_FUNCTION accel_status_t accel_gather_object_async(accel_state_t* state, const accel_value_t* object,
                                                        accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return gather_object(object); });
}

ACCEL_FUNCTION accel_status_t accel_reduce(accel_state_t* state, const accel_value_t* value,
                                           accel_reduction_t reduction, double scale, accel_value_t* out) {
  return run(__func__, state, out, [&] { return reduce(value, reduction, scale); });
}

ACCEL_FUNCTION accel_status_t accel_reduce_async(accel_state_t* state, const accel_value_t* value,
                                                 accel_reduction_t reduction, double scale, accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return reduce(value, reduction, scale); });
}

ACCEL_FUNCTION accel_status_t accel_broadcast(accel_state_t* state, const accel_value_t* value, int32_t from_process) {
  return run(__func__, state, [&] { return broadcast(value, from_process); });
}

ACCEL_FUNCTION accel_status_t accel_broadcast_async(accel_state_t* state, const accel_value_t* value,
                                                    int32_t from_process, accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return broadcast(value, from_process); });
}

ACCEL_FUNCTION accel_status_t accel_copy_tensor_to_devices(accel_state_t* state, const accel_tensor_t* tensor,
                                                           accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    comm::Communicator& communicator = *communicator_of(state);
    return new_tensor(comm::run(communicator, copy_tensor_to_devices(tensor)(communicator)).toTensor());
  });
}

ACCEL_FUNCTION accel_status_t accel_broadcast_object_list(accel_state_t* state, const accel_value_t* objects,
                                                          int32_t from_process, accel_value_t* out) {
  return run(__func__, state, out, [&] { return broadcast_object_list(objects, from_process); });
}

ACCEL_FUNCTION accel_status_t accel_broadcast_object_list_async(accel_state_t* state, const accel_value_t* objects,
                                                                int32_t from_process, accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return broadcast_object_list(objects, from_process); });
}

ACCEL_FUNCTION accel_status_t accel_pad_across_processes(accel_state_t* state, const accel_value_t* value, int64_t dim,
                                                         double pad_index, int32_t pad_first, accel_value_t* out) {
  return run(__func__, state, out, [&] { return pad_across_processes(value, dim, pad_index, pad_first != 0); });
}

ACCEL_FUNCTION accel_status_t accel_pad_across_processes_async(accel_state_t* state, const accel_value_t* value,
                                                               int64_t dim, double pad_index, int32_t pad_first,
                                                               accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return pad_across_processes(value, dim, pad_index, pad_first != 0); });
}

ACCEL_FUNCTION accel_status_t accel_all_reduce(accel_state_t* state, accel_tensor_t* tensor,
                                               accel_reduction_t reduction) {
  return run(__func__, state, [&] { return all_reduce(tensor, reduction); });
}

ACCEL_FUNCTION accel_status_t accel_all_reduce_async(accel_state_t* state, accel_tensor_t* tensor,
                                                     accel_reduction_t reduction, accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return all_reduce(tensor, reduction); });
}

ACCEL_FUNCTION accel_status_t accel_all_gather(accel_state_t* state, const accel_tensor_t* input,
                                               accel_tensor_t* output) {
  return run(__func__, state, [&] { return all_gather(input, output); });
}

ACCEL_FUNCTION accel_status_t accel_all_gather_async(accel_state_t* state, const accel_tensor_t* input,
                                                     accel_tensor_t* output, accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return all_gather(input, output); });
}

ACCEL_FUNCTION accel_status_t accel_reduce_scatter(accel_state_t* state, const accel_tensor_t* input,
                                                   accel_reduction_t reduction, accel_tensor_t* output) {
  return run(__func__, state, [&] { return reduce_scatter(input, reduction, output); });
}

ACCEL_FUNCTION accel_status_t accel_reduce_scatter_async(accel_state_t* state, const accel_tensor_t* input,
                                                         accel_reduction_t reduction, accel_tensor_t* output,
                                                         accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return reduce_scatter(input, reduction, output); });
}

ACCEL_FUNCTION accel_status_t accel_all_to_all(accel_state_t* state, const accel_tensor_t* input,
                                               accel_tensor_t* output) {
  return run(__func__, state, [&] { return all_to_all(input, output); });
}

ACCEL_FUNCTION accel_status_t accel_all_to_all_async(accel_state_t* state, const accel_tensor_t* input,
                                                     accel_tensor_t* output, accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return all_to_all(input, output); });
}

ACCEL_FUNCTION accel_status_t accel_scatter(accel_state_t* state, const accel_tensor_t* input, int32_t from_process,
                                            accel_tensor_t* output) {
  return run(__func__, state, [&] { return scatter(input, from_process, output); });
}

ACCEL_FUNCTION accel_status_t accel_scatter_async(accel_state_t* state, const accel_tensor_t* input,
                                                  int32_t from_process, accel_tensor_t* output,
                                                  accel_work_t** out_work) {
  return start(__func__, state, out_work, [&] { return scatter(input, from_process, output); });
}

ACCEL_FUNCTION accel_status_t accel_wait_for_everyone(accel_state_t* state) { return run(__func__, state, barrier); }

ACCEL_FUNCTION accel_status_t accel_wait_for_everyone_async(accel_state_t* state, accel_work_t** out_work) {
  return start(__func__, state, out_work, barrier);
}

ACCEL_FUNCTION accel_status_t accel_send(accel_state_t* state, const accel_tensor_t* tensor, int32_t to_process,
                                         int32_t tag) {
  return guarded(__func__, [&] { communicator_of(state)->send(check(tensor, "tensor").tensor, to_process, tag); });
}

ACCEL_FUNCTION accel_status_t accel_send_async(accel_state_t* state, const accel_tensor_t* tensor, int32_t to_process,
                                               int32_t tag, accel_work_t** out_work) {
  return start_message(__func__, state, out_work,
                       [&] { return comm::Collective::send(check(tensor, "tensor").tensor, to_process, tag); });
}

ACCEL_FUNCTION accel_status_t accel_recv(accel_state_t* state, accel_tensor_t* tensor, int32_t from_process,
                                         int32_t tag) {
  return guarded(__func__, [&] { communicator_of(state)->receive(check(tensor, "tensor").tensor, from_process, tag); });
}

ACCEL_FUNCTION accel_status_t accel_recv_async(accel_state_t* state, accel_tensor_t* tensor, int32_t from_process,
                                               int32_t tag, accel_work_t** out_work) {
  return start_message(__func__, state, out_work,
                       [&] { return comm::Collective::receive(check(tensor, "tensor").tensor, from_process, tag); });
}

ACCEL_FUNCTION accel_status_t accel_flight_record(const accel_state_t* state, accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    return new_buffer(check(state, "state").accelerator->state().communicator()->flight_record()->to_json());
  });
}

ACCEL_FUNCTION accel_status_t accel_progress(accel_state_t* state, int64_t max_us) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = *check(state, "state").accelerator->state().communicator();
    require(max_us >= 0, Status::kInvalidArgument, "max_us is ", max_us, "; expected 0 or more");
    const std::chrono::microseconds longest = std::chrono::hours(24 * 365);
    const bool under_way = communicator.group().works->progress(std::min(std::chrono::microseconds(max_us), longest));
    return under_way ? ACCEL_IN_PROGRESS : ACCEL_OK;
  });
}

}  // namespace accel::capi
