// SPDX-License-Identifier: Apache-2.0
// The one symbol of the plugin.
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.hpp"
#include "comm/backend/backend_plugin.hpp"
#include "comm/collective_error.hpp"
#include "comm/error_line.hpp"
#include "comm/ucx/backend.hpp"

namespace {

accel::comm::CollectiveFailure kind_of(accel::Status status) {
  using accel::comm::CollectiveFailure;
  switch (status) {
    case accel::Status::kTimeout:
      return CollectiveFailure::kTimeout;
    case accel::Status::kCancelled:
      return CollectiveFailure::kAborted;
    case accel::Status::kPeerLost:
      return CollectiveFailure::kPeerLost;
    case accel::Status::kOutOfMemory:
      return CollectiveFailure::kOutOfMemory;
    default:
      return CollectiveFailure::kBackend;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* accel_create_backend(
    const accel::comm::BackendArguments* arguments, char* error, size_t error_size) {
  using accel::comm::ucx::UcxBackend;
  std::string reason;
  try {
    if (arguments->size < 1 || arguments->size > accel::comm::ucx::kMaxRanks || arguments->rank < 0 ||
        arguments->rank >= arguments->size)
      reason = accel::text("rank ", arguments->rank, " of ", arguments->size, " is not possible; a group has 1 to ",
                           accel::comm::ucx::kMaxRanks, " ranks, counted from 0");
    else
      return c10::make_intrusive<UcxBackend>(
                 c10::intrusive_ptr<c10d::Store>::reclaim_copy(arguments->store), arguments->rank, arguments->size,
                 std::chrono::milliseconds(arguments->timeout_ms), arguments->group_name, arguments->current_call,
                 dynamic_cast<const UcxBackend*>(arguments->parent), arguments->stays_on_host)
          .release();
  } catch (const accel::comm::CollectiveError& failure) {
    if (arguments->failure != nullptr) *arguments->failure = failure.failure();
    reason = failure.what();
  } catch (const accel::Error& failure) {  // of the store, or of a thread
    if (arguments->failure != nullptr) *arguments->failure = kind_of(failure.status());
    reason = failure.message();
  } catch (const std::bad_alloc& failure) {
    if (arguments->failure != nullptr) *arguments->failure = accel::comm::CollectiveFailure::kOutOfMemory;
    reason = accel::comm::error_line(failure);
  } catch (const std::exception& failure) {
    reason = accel::comm::error_line(failure);
  } catch (...) {
    reason = "the backend could not be made";
  }
  std::snprintf(error, error_size, "%s", reason.c_str());
  return nullptr;
}

static_assert(std::is_same_v<decltype(&accel_create_backend), accel::comm::CreateBackend>,
              "the type that the engine looks for");
