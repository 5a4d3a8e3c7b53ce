// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/guard.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "capi/calls/thread_error.hpp"
#include "capi/calls/torch_message.hpp"
#include "comm/collective_error.hpp"
#include "comm/error_status.hpp"

namespace accel::capi {
namespace {

#define ACCEL_SAME_STATUS(ours, pinned) static_assert(static_cast<accel_status_t>(Status::ours) == (pinned))
ACCEL_SAME_STATUS(kOk, ACCEL_OK);
ACCEL_SAME_STATUS(kInProgress, ACCEL_IN_PROGRESS);
ACCEL_SAME_STATUS(kIterEnd, ACCEL_ITER_END);
ACCEL_SAME_STATUS(kStepSkipped, ACCEL_STEP_SKIPPED);
ACCEL_SAME_STATUS(kInvalidArgument, ACCEL_ERROR_INVALID_ARGUMENT);
ACCEL_SAME_STATUS(kInvalidHandle, ACCEL_ERROR_INVALID_HANDLE);
ACCEL_SAME_STATUS(kTypeMismatch, ACCEL_ERROR_TYPE_MISMATCH);
ACCEL_SAME_STATUS(kShapeMismatch, ACCEL_ERROR_SHAPE_MISMATCH);
ACCEL_SAME_STATUS(kNotFound, ACCEL_ERROR_NOT_FOUND);
ACCEL_SAME_STATUS(kAlreadyExists, ACCEL_ERROR_ALREADY_EXISTS);
ACCEL_SAME_STATUS(kInvalidState, ACCEL_ERROR_INVALID_STATE);
ACCEL_SAME_STATUS(kUnsupported, ACCEL_ERROR_UNSUPPORTED);
ACCEL_SAME_STATUS(kNotImplemented, ACCEL_ERROR_NOT_IMPLEMENTED);
ACCEL_SAME_STATUS(kOutOfMemory, ACCEL_ERROR_OUT_OF_MEMORY);
ACCEL_SAME_STATUS(kIo, ACCEL_ERROR_IO);
ACCEL_SAME_STATUS(kCorrupt, ACCEL_ERROR_CORRUPT);
ACCEL_SAME_STATUS(kTimeout, ACCEL_ERROR_TIMEOUT);
ACCEL_SAME_STATUS(kCancelled, ACCEL_ERROR_CANCELLED);
ACCEL_SAME_STATUS(kPeerLost, ACCEL_ERROR_PEER_LOST);
ACCEL_SAME_STATUS(kCollectiveMismatch, ACCEL_ERROR_COLLECTIVE_MISMATCH);
ACCEL_SAME_STATUS(kBackend, ACCEL_ERROR_BACKEND);
ACCEL_SAME_STATUS(kTorch, ACCEL_ERROR_TORCH);
ACCEL_SAME_STATUS(kUser, ACCEL_ERROR_USER);
ACCEL_SAME_STATUS(kInternal, ACCEL_ERROR_INTERNAL);
#undef ACCEL_SAME_STATUS

// The status of a callback, which is passed through the engine, perhaps on another thread, to the outer call.
class CallbackError final : public Error {
 public:
  CallbackError(accel_status_t status, std::string message, int32_t rank = -1)
      : Error(static_cast<Status>(status), std::move(message)), rank_(rank) {}
  int32_t rank() const { return rank_; }

 private:
  int32_t rank_;  // of the process that failed; negative: this one
};

// With advice, and without an allocation: there may be no memory for a longer text.
void set_memory_error(std::string_view line, const char* function) noexcept {
  std::array<char, ThreadError::kCapacity> said{};
  line = line.substr(0, said.size() / 2);
  if (!line.empty() && line.back() == '.') line.remove_suffix(1);
  std::snprintf(said.data(), said.size(), "%.*s; take a smaller batch, or end what else uses this memory",
                static_cast<int>(line.size()), line.data());
  set_thread_error(ACCEL_ERROR_OUT_OF_MEMORY, said.data(), function);
}

accel_status_t record_torch_error(const char* function, const c10::Error& error) noexcept {
  const TorchMessage message(error.what_without_backtrace());
  auto status = static_cast<accel_status_t>(comm::status_of(error));
  if (message.means_not_supported()) status = ACCEL_ERROR_UNSUPPORTED;
  if (status == ACCEL_ERROR_OUT_OF_MEMORY)
    set_memory_error(message.line(), function);
  else
    set_thread_error(status, message.line(), function);
  return status;
}

accel_status_t record_other_error(const char* function, const std::exception& error) noexcept {
  const TorchMessage message(error.what());
  accel_status_t status = message.is_of_script() ? ACCEL_ERROR_TORCH : ACCEL_ERROR_INTERNAL;
  if (message.means_overflow()) status = ACCEL_ERROR_INVALID_ARGUMENT;
  set_thread_error(status, message.line(), function);
  return status;
}

}  // namespace

accel_status_t record_exception(const char* function) noexcept {
  const auto record = [&](accel_status_t status, std::string_view message, int32_t rank = -1) {
    set_thread_error(status, message, function, rank);
    return status;
  };
  try {
    throw;
  } catch (const CallbackError& error) {
    return record(static_cast<accel_status_t>(error.status()), error.message(), error.rank());
  } catch (const Error& error) {
    return record(static_cast<accel_status_t>(error.status()), error.message());
  } catch (const comm::CollectiveError& error) {
    return record(static_cast<accel_status_t>(comm::status_of(error)), error.what(), error.rank());
  } catch (const c10::Error& error) {
    return record_torch_error(function, error);
  } catch (const std::bad_alloc&) {
    return record(ACCEL_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  } catch (const std::length_error& error) {
    return record(ACCEL_ERROR_INVALID_ARGUMENT, text("a count is larger than any memory (", error.what(), ")"));
  } catch (const std::exception& error) {
    return record_other_error(function, error);
  } catch (...) {
    return record(ACCEL_ERROR_INTERNAL,
                  "an exception of unknown type; only types derived from std::exception are expected");
  }
}

std::string callback_message(accel_status_t status, uint64_t errors_before, const char* callback) {
  const ThreadError& latest = thread_error();
  if (latest.count != errors_before && latest.status == status && latest.message[0] != '\0') return latest.message;
  return text("the callback ", callback, " returned ", status, " and set no message");
}

void throw_callback_error(int64_t status, uint64_t errors_before, const char* callback) {
  const bool is_status = status >= INT32_MIN;
  const accel_status_t code = is_status ? static_cast<accel_status_t>(status) : ACCEL_ERROR_INVALID_ARGUMENT;
  throw CallbackError(code, callback_message(code, errors_before, callback));
}

void throw_rank_error(accel_status_t status, int32_t rank, const std::string& message) {
  throw CallbackError(status, message, rank);
}

}  // namespace accel::capi
