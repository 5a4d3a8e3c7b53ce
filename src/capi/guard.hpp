// The one way out of every function of the C API: exceptions become a status and the thread's error.
#pragma once

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "accel.h"
#include "base/current_call.hpp"
#include "base/error.hpp"
#include "capi/process_check.hpp"
#include "capi/running_calls.hpp"
#include "kernels/thread_count.hpp"

// Before the definition of every function of accel.h. The attribute is repeated because GCC takes a definition inside
// of a namespace for another declaration than the header's, and would hide it.
#define ACCEL_FUNCTION extern "C" ACCEL_EXPORT

namespace accel::capi {

// Translates the exception in flight; call it inside a catch block only.
accel_status_t record_exception(const char* function) noexcept;

// The message that a host callback set for the negative status that it returned, or one that says that it set none.
// What the thread had before the call, when thread_error().count was `errors_before`, is an older error.
std::string callback_message(accel_status_t status, uint64_t errors_before, const char* callback);
// Through the engine, perhaps over another thread, to the outer call, which returns the status with this message.
[[noreturn]] void throw_callback_error(int64_t status, uint64_t errors_before, const char* callback);

// Scopes whose handles were released while they were open, on all threads.
extern std::atomic<int64_t> scopes_given_up;
// Undoes those of this thread inside of which nothing is open. Nothing happens inside of a callback: what the engine
// has set on the thread around it would be undone in the wrong order.
void leave_scopes_given_up() noexcept;

// Where LibTorch's warnings go during our calls: to the log callback instead of standard error. Never null.
c10::WarningHandler* log_warnings() noexcept;

// Every body: `return guarded(__func__, [&] { ... });`. One that returns nothing means ACCEL_OK.
// Not noexcept: the host's runtime may end a thread inside of a callback, which unwinds it through here.
template <typename Body>
accel_status_t guarded(const char* function, Body&& body) {
  try {
    require_usable_process();
    const RunningCall running;
    if (scopes_given_up.load(std::memory_order_relaxed) != 0) leave_scopes_given_up();
    kernels::follow_num_threads();
    const c10::WarningUtils::WarningHandlerGuard warnings(log_warnings());
    const CurrentCall current(function);
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return ACCEL_OK;
    } else {
      return body();
    }
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return record_exception(function);
  }
}

template <typename T>
T* check_pointer(T* pointer, const char* name) {
  require(pointer != nullptr, Status::kInvalidArgument, name, " is NULL; expected a pointer");
  return pointer;
}

// A handle is made of the engine's object that it holds.
template <typename Out, typename Value>
void write_output(Out* out, Value&& value) {
  if constexpr (std::is_assignable_v<Out&, Value&&>) {
    *out = std::forward<Value>(value);
  } else if constexpr (!std::is_pointer_v<Out>) {
    *out = value.release();  // from what owns it
  } else {
    *out = std::make_unique<std::remove_pointer_t<Out>>(std::forward<Value>(value)).release();
  }
}
template <typename Handle>
void write_output(Handle** out, std::unique_ptr<Handle> handle) {
  *out = handle.release();
}

// For functions with one output, `out`, which receives what the body returns.
template <typename Out, typename Body>
accel_status_t guarded(const char* function, Out* out, Body&& body) {
  return guarded(function, [&] {
    check_pointer(out, "out");
    write_output(out, body());
  });
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
