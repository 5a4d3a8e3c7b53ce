// SPDX-License-Identifier: Apache-2.0
// Section 4: works of asynchronous calls.
#include "comm/work.hpp"

#include <algorithm>
#include <chrono>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/value.hpp"
#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "comm/work_list.hpp"
#include "trace/span.hpp"
#include "trace/step_times.hpp"

accel_work::accel_work(std::shared_ptr<accel::comm::Work> work, const accel::comm::Communicator& communicator)
    : work(std::move(work)), works(communicator.group().works), step_times(communicator.step_times()) {
  works->add(this->work);
}

namespace accel::capi {
namespace {

// The status of an error, whose message becomes the thread's.
accel_status_t status_of(const std::exception_ptr& error, const char* function) {
  if (!error) return ACCEL_OK;
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return record_exception(function);
  }
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_work_wait(accel_work_t* work, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    comm::Work& engine = *check(work, "work").work;
    const StepTimes::Section waiting(*work->step_times, StepPart::kCommunication);
    const Span waited(SpanKind::kWait, "wait for work");
    require(timeout_ms >= 0, Status::kInvalidArgument, "timeout_ms is ", timeout_ms, "; expected 0 or more");
    // The end of the wait must not overflow the steady clock.
    const std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
    if (!engine.wait(std::min(std::chrono::milliseconds(timeout_ms), longest))) return ACCEL_IN_PROGRESS;
    engine.deliver();
    engine.result();
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION int32_t accel_work_test(const accel_work_t* work) {
  return guarded_value<int32_t>(__func__, -1, [&] { return check(work, "work").work->ended() ? 1 : 0; });
}

ACCEL_FUNCTION accel_status_t accel_work_result(const accel_work_t* work, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const comm::Work& engine = *check(work, "work").work;
    require(engine.ended(), Status::kInvalidState, "work has not ended; call accel_work_wait() first");
    return from_ivalue(engine.result());
  });
}

ACCEL_FUNCTION accel_status_t accel_work_then(accel_work_t* work, accel_work_fn callback, void* user_data,
                                              accel_destroy_fn destroy) {
  const char* const function = __func__;
  return guarded(function, [&] {
    const Callback<accel_work_fn> called(callback, user_data, destroy);
    const accel_work& handle = check(work, "work");
    check_pointer(callback, "callback");
    handle.work->add_callback([called, function](const std::exception_ptr& error) {
      const accel_status_t status = status_of(error, function);
      called.checked("of accel_work_then", status);
    });
    handle.works->add_again(handle.work);
  });
}

ACCEL_FUNCTION accel_work_t* accel_work_retain(accel_work_t* work) { return retain_handle(__func__, work, "work"); }

ACCEL_FUNCTION void accel_work_release(accel_work_t* work) { release_handle(work); }

}  // namespace accel::capi
