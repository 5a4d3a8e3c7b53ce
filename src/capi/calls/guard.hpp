// SPDX-License-Identifier: Apache-2.0
// Guard of every function of the C API: converts exceptions to a status and the thread's error.
#pragma once

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accel.h"
#include "base/current_call.hpp"
#include "base/error.hpp"
#include "capi/calls/process_check.hpp"
#include "kernels/thread_count.hpp"
#include "os/running_calls.hpp"

// Before the definition of every function of accel.h. The attribute is repeated because for GCC a definition inside a
// namespace is a declaration of its own, which would be hidden.
#define ACCEL_FUNCTION extern "C" ACCEL_EXPORT

namespace accel::capi {

// Translates the exception that is being handled; only inside a catch block.
accel_status_t record_exception(const char* function) noexcept;

// The message that a callback set for the negative status that it returned, or a default message. Errors from before
// the call, when thread_error().count was `errors_before`, are not used.
std::string callback_message(accel_status_t status, uint64_t errors_before, const char* callback);
// Thrown through the engine, perhaps on another thread, to the outer call, which returns the status with this message.
[[noreturn]] void throw_callback_error(int64_t status, uint64_t errors_before, const char* callback);
// The error of another process.
[[noreturn]] void throw_rank_error(accel_status_t status, int32_t rank, const std::string& message);

// Scopes whose handles were released while they were open, on all threads.
extern std::atomic<int64_t> scopes_given_up;
// Ends those of this thread that are innermost. Does nothing inside a callback, because the engine's own guards around
// it must end first.
void leave_scopes_given_up() noexcept;

// The handler of LibTorch's warnings during our calls: the log callback instead of standard error. Never null.
c10::WarningHandler* log_warnings() noexcept;

// Every function body: `return guarded(__func__, [&] { ... });`. A lambda without a result means ACCEL_OK.
// Not noexcept: the runtime of the application may end a thread inside a callback, which unwinds through here.
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

// An array of the caller, before its items are read; it may be NULL when there are none.
template <typename T>
const T* check_array(const T* items, size_t count, const char* name) {
  require(items != nullptr || count == 0, Status::kInvalidArgument, name, " is NULL; expected ", count, " items");
  require(count <= PTRDIFF_MAX / sizeof(T), Status::kInvalidArgument, name, " has ", count,
          " items, more than any memory holds");
  return items;
}

// Copies what the caller says is there.
template <typename T>
std::vector<T> read_array(const T* items, size_t count, const char* name) {
  check_array(check_pointer(items, name), count, name);
  return {items, items + count};
}

// Creates a handle from an object of the engine.
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

// For functions with one output, `out`, which receives the result of the body.
template <typename Out, typename Body>
accel_status_t guarded(const char* function, Out* out, Body&& body) {
  return guarded(function, [&] {
    check_pointer(out, "out");
    write_output(out, body());
  });
}

// For getters that return a value: `otherwise` is returned on errors.
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
