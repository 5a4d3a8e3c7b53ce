// SPDX-License-Identifier: Apache-2.0
// Section 10: search for the largest batch size that fits into memory.
#include "accelerator/batch_size_search.hpp"

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/thread_error.hpp"

namespace accel::capi {
namespace {

accelerator::Attempt attempt_with(const Callback<accel_batch_size_fn>& function, int64_t batch_size) {
  const char* const name = "of the batch size";
  const uint64_t errors_before = thread_error().count;
  const accel_status_t status = function(batch_size);
  if (status >= 0) return {};
  const std::string message = callback_message(status, errors_before, name);
  if (accelerator::is_out_of_memory(static_cast<Status>(status), message))
    return {accelerator::AttemptResult::kOutOfMemory, message};
  if (status == ACCEL_ERROR_COLLECTIVE_MISMATCH) return {accelerator::AttemptResult::kInterrupted, message};
  throw_callback_error(status, errors_before, name);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_find_executable_batch_size(accel_state_t* state, accel_batch_size_fn function,
                                                               accel_reduce_batch_size_fn reduce, void* user_data,
                                                               accel_destroy_fn destroy, int64_t starting_batch_size,
                                                               int64_t* out_batch_size) {
  return guarded(__func__, [&] {
    const Callback<accel_batch_size_fn> attempt(function, user_data, destroy);
    const auto accelerator = check(state, "state").accelerator;
    check_pointer(function, "function");
    const auto next_size = attempt.with<accel_reduce_batch_size_fn>(reduce);
    accelerator::BatchSizeSearch search;
    search.attempt = [&](int64_t batch_size) { return attempt_with(attempt, batch_size); };
    if (reduce != nullptr)
      search.reduce = [&](int64_t batch_size, int64_t proposed, const std::string& reason) {
        return next_size(batch_size, proposed, reason.c_str());
      };
    search.release_memory = [&] { accelerator->release_cached_memory(); };
    const int64_t found =
        accelerator::find_executable_batch_size(*accelerator->state().communicator(), search, starting_batch_size);
    if (out_batch_size != nullptr) *out_batch_size = found;
  });
}

}  // namespace accel::capi
