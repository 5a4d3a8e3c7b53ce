// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "accel.h"
#include "base/log.hpp"
#include "base/status.hpp"
#include "base/text_check.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/recent_errors.hpp"
#include "capi/calls/thread_error.hpp"

namespace accel::capi {

namespace {

// The application handles its errors; the log helps to find their causes.
void log_error(const ThreadError& error) noexcept try {
  log(LogLevel::kDebug, error.function, error.function[0] == '\0' ? "" : ": ", accel_status_name(error.status), ": ",
      error.message);
} catch (const std::exception&) {  // no memory for the line
}

// Messages may quote any bytes of damaged files: those that are not UTF-8, and control characters, become '?'.
void make_printable(char* text, size_t size) noexcept {
  for (size_t begin = 0; begin < size; begin++) {
    begin += first_bad_byte({text + begin, size - begin});
    if (begin < size) text[begin] = '?';
  }
  for (size_t i = 0; i < size; i++)
    if (static_cast<unsigned char>(text[i]) < ' ' || text[i] == '\x7f') text[i] = text[i] == '\t' ? ' ' : '?';
}

}  // namespace

ThreadError& thread_error() noexcept {
  thread_local ThreadError error{};
  return error;
}

void set_thread_error(accel_status_t status, std::string_view message, const char* function, int32_t rank) noexcept {
  ThreadError& error = thread_error();
  size_t size = message.size();
  if (size >= ThreadError::kCapacity) {
    size = ThreadError::kCapacity - 1;
    while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xc0) == 0x80) size--;  // inside a UTF-8 sequence
  }
  for (size_t i = 0; i < size; i++) error.message[i] = message[i] == '\n' || message[i] == '\r' ? ' ' : message[i];
  error.message[size] = '\0';
  make_printable(error.message, size);
  error.count++;
  error.status = status;
  error.function = function;
  error.rank = rank;
  note_error(error);
  log_error(error);
}

ACCEL_FUNCTION const char* accel_status_name(accel_status_t status) {
  const char* name = status_name(static_cast<Status>(status));
  return name == nullptr ? "unknown status" : name;
}

ACCEL_FUNCTION const char* accel_last_error(void) { return thread_error().message; }

ACCEL_FUNCTION accel_status_t accel_error_take(accel_error_t** out) {
  return guarded(__func__, [&] {
    check_pointer(out, "out");
    ThreadError& latest = thread_error();
    if (latest.status == ACCEL_OK)
      return ACCEL_ERROR_NOT_FOUND;  // not an error of its own: the next call would find it
    auto error = std::make_unique<accel_error>();
    error->status = latest.status;
    error->message = latest.message;
    error->function = latest.function;
    error->rank = latest.rank;
    latest.status = ACCEL_OK;
    latest.message[0] = '\0';
    *out = error.release();
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION accel_status_t accel_error_code(const accel_error_t* error) {
  return guarded(__func__, [&] { return check(error, "error").status; });
}

ACCEL_FUNCTION const char* accel_error_message(const accel_error_t* error) {
  return guarded_value<const char*>(__func__, nullptr, [&] { return check(error, "error").message.c_str(); });
}

ACCEL_FUNCTION const char* accel_error_function(const accel_error_t* error) {
  return guarded_value<const char*>(__func__, nullptr, [&] { return check(error, "error").function.c_str(); });
}

ACCEL_FUNCTION int32_t accel_error_rank(const accel_error_t* error) {
  return guarded_value(__func__, -1, [&] { return check(error, "error").rank; });
}

ACCEL_FUNCTION void accel_error_release(accel_error_t* error) { release_handle(error); }

ACCEL_FUNCTION void accel_error_set(accel_status_t status, const char* message) {
  guarded(__func__, [&] {
    require(status < 0, Status::kInvalidArgument, "status is ", status, "; expected a negative number");
    set_thread_error(status, check_pointer(message, "message"), "");
    return ACCEL_OK;
  });
}

}  // namespace accel::capi
