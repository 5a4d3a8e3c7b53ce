// Section 4: communication.
#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/value.hpp"
#include "comm/collectives.hpp"

using namespace accel;
using namespace accel::capi;

namespace {

static_assert(static_cast<int32_t>(comm::Reduction::kSum) == ACCEL_REDUCE_SUM &&
              static_cast<int32_t>(comm::Reduction::kMean) == ACCEL_REDUCE_MEAN &&
              static_cast<int32_t>(comm::Reduction::kMin) == ACCEL_REDUCE_MIN &&
              static_cast<int32_t>(comm::Reduction::kMax) == ACCEL_REDUCE_MAX &&
              static_cast<int32_t>(comm::Reduction::kProduct) == ACCEL_REDUCE_PRODUCT &&
              static_cast<int32_t>(comm::Reduction::kAnd) == ACCEL_REDUCE_AND &&
              static_cast<int32_t>(comm::Reduction::kOr) == ACCEL_REDUCE_OR &&
              static_cast<int32_t>(comm::Reduction::kXor) == ACCEL_REDUCE_XOR);

comm::Communicator& communicator_of(accel_state_t* state) {
  return *check(state, "state").accelerator->state().communicator();
}

comm::Reduction to_reduction(accel_reduction_t reduction) { return static_cast<comm::Reduction>(reduction); }

// Tree in, tree out.
template <typename Collective>
accel_status_t on_tree(const char* function, accel_state_t* state, const accel_value_t* value, const char* name,
                       accel_value_t* out, Collective&& collective) {
  return guarded(function, [&] {
    comm::Communicator& communicator = communicator_of(state);
    check_pointer(value, name);
    check_pointer(out, "out");
    const c10::IValue input = to_ivalue(*value, name);
    give(out, collective(communicator, input));
    return ACCEL_OK;
  });
}

}  // namespace

accel_status_t accel_gather(accel_state_t* state, const accel_value_t* value, accel_value_t* out) {
  return on_tree(__func__, state, value, "value", out, comm::gather);
}

accel_status_t accel_gather_for_metrics(accel_state_t* state, const accel_value_t* value, accel_value_t* out) {
  return on_tree(__func__, state, value, "value", out, [&](comm::Communicator&, const c10::IValue& input) {
    return check(state, "state").accelerator->gather_for_metrics(input);
  });
}

accel_status_t accel_gather_object(accel_state_t* state, const accel_value_t* object, accel_value_t* out) {
  return on_tree(__func__, state, object, "object", out, comm::gather_object);
}

accel_status_t accel_reduce(accel_state_t* state, const accel_value_t* value, accel_reduction_t reduction, double scale,
                            accel_value_t* out) {
  return on_tree(__func__, state, value, "value", out, [&](comm::Communicator& communicator, const c10::IValue& input) {
    return comm::reduce(communicator, input, to_reduction(reduction), scale);
  });
}

accel_status_t accel_broadcast(accel_state_t* state, const accel_value_t* value, int32_t from_process) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    comm::broadcast(communicator, to_ivalue(*check_pointer(value, "value"), "value"), from_process);
    return ACCEL_OK;
  });
}

accel_status_t accel_broadcast_object_list(accel_state_t* state, const accel_value_t* objects, int32_t from_process,
                                           accel_value_t* out) {
  return on_tree(__func__, state, objects, "objects", out,
                 [&](comm::Communicator& communicator, const c10::IValue& input) {
                   return comm::broadcast_object_list(communicator, input, from_process);
                 });
}

accel_status_t accel_pad_across_processes(accel_state_t* state, const accel_value_t* value, int64_t dim,
                                          double pad_index, int32_t pad_first, accel_value_t* out) {
  return on_tree(__func__, state, value, "value", out, [&](comm::Communicator& communicator, const c10::IValue& input) {
    return comm::pad_across_processes(communicator, input, dim, pad_index, pad_first != 0);
  });
}

accel_status_t accel_all_reduce(accel_state_t* state, accel_tensor_t* tensor, accel_reduction_t reduction) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    communicator.all_reduce(check(tensor, "tensor").tensor, to_reduction(reduction));
    return ACCEL_OK;
  });
}

accel_status_t accel_all_gather(accel_state_t* state, const accel_tensor_t* input, accel_tensor_t* output) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    communicator.all_gather(check(input, "input").tensor, check(output, "output").tensor);
    return ACCEL_OK;
  });
}

accel_status_t accel_reduce_scatter(accel_state_t* state, const accel_tensor_t* input, accel_reduction_t reduction,
                                    accel_tensor_t* output) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    communicator.reduce_scatter(check(input, "input").tensor, to_reduction(reduction), check(output, "output").tensor);
    return ACCEL_OK;
  });
}

accel_status_t accel_all_to_all(accel_state_t* state, const accel_tensor_t* input, accel_tensor_t* output) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    communicator.all_to_all(check(input, "input").tensor, check(output, "output").tensor);
    return ACCEL_OK;
  });
}

accel_status_t accel_scatter(accel_state_t* state, const accel_tensor_t* input, int32_t from_process,
                             accel_tensor_t* output) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    const at::Tensor source = input == nullptr ? at::Tensor() : check(input, "input").tensor;
    communicator.scatter(source, from_process, check(output, "output").tensor);
    return ACCEL_OK;
  });
}

accel_status_t accel_send(accel_state_t* state, const accel_tensor_t* tensor, int32_t to_process, int32_t tag) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    communicator.send(check(tensor, "tensor").tensor, to_process, tag);
    return ACCEL_OK;
  });
}

accel_status_t accel_recv(accel_state_t* state, accel_tensor_t* tensor, int32_t from_process, int32_t tag) {
  return guarded(__func__, [&] {
    comm::Communicator& communicator = communicator_of(state);
    communicator.receive(check(tensor, "tensor").tensor, from_process, tag);
    return ACCEL_OK;
  });
}
