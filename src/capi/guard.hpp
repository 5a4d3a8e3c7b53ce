// The one way out of every function of the C API: exceptions become a status and the thread's error.
#pragma once

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <exception>

#include "accel.h"
#include "base/current_call.hpp"
#include "capi/process_check.hpp"

// Before the definition of every function of accel.h. The attribute is repeated because GCC takes a definition inside
// of a namespace for another declaration than the header's, and would hide it.
#define ACCEL_FUNCTION extern "C" ACCEL_EXPORT

namespace accel::capi {

// Translates the exception in flight; call it inside a catch block only.
accel_status_t record_exception(const char* function) noexcept;

// The status of a host callback: 0 and positive ones pass; negative ones leave the engine as CallbackError and come
// back from the outer call unchanged, with the message that the callback set.
void check_callback(accel_status_t status, const char* callback);

// Where LibTorch's warnings go during our calls: to the log callback instead of standard error. Never null.
c10::WarningHandler* log_warnings() noexcept;

// Every body: `return guarded(__func__, [&] { ...; return ACCEL_OK; });`
// Not noexcept: the host's runtime may end a thread inside of a callback, which unwinds it through here.
template <typename Body>
accel_status_t guarded(const char* function, Body&& body) {
  try {
    require_usable_process();
    const c10::WarningUtils::WarningHandlerGuard warnings(log_warnings());
    const CurrentCall current(function);
    return body();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return record_exception(function);
  }
}

// For getters that return a value: `otherwise` stands for the error.
template <typename Value, typename Body>
Value guarded_value(const char* function, Value otherwise, Body&& body) noexcept {
  try {
    require_usable_process();
    return body();
  } catch (...) {
    record_exception(function);
    return otherwise;
  }
}

}  // namespace accel::capi
