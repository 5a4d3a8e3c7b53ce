// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/group_failure.hpp"

#include <new>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/error_line.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::comm::ucx {

bool GroupFailure::record(Failure failure) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_first = !failure_;
  if (is_first) failure_ = std::move(failure);
  is_set_.store(true);
  return is_first;
}

void GroupFailure::set(Failure failure) noexcept {
  if (!record(std::move(failure))) return;
  if (StatusPage* const page = peers_.status_page(peers_.rank())) page->set_failure(*failure_);
  peers_.publish_failure(*failure_);
}

void GroupFailure::set_to_exception() noexcept {
  try {
    set(current_failure(peers_.job_ranks().own(), "a call"));
  } catch (const std::exception&) {
    set(failure_without_memory(peers_.job_ranks().own()));
  }
}

bool GroupFailure::end(Failure failure) noexcept { return record(std::move(failure)); }

void GroupFailure::throw_if_set() const {
  if (!is_set()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  throw_if_known();
}

void GroupFailure::throw_if_known() const {
  if (failure_)
    throw CollectiveError(kind_for_others(failure_->kind), peers_.job_ranks().own(),
                          text("the group has failed before: ", failure_->message));
}

std::exception_ptr GroupFailure::error() const noexcept {
  try {
    return std::make_exception_ptr(
        CollectiveError(kind_for_others(failure_->kind), peers_.job_ranks().own(), failure_->message));
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

CollectiveFailure kind_for_others(CollectiveFailure kind) {
  const bool about_a_peer = kind == CollectiveFailure::kPeerLost || kind == CollectiveFailure::kTimeout;
  return about_a_peer ? kind : CollectiveFailure::kAborted;
}

Failure current_failure(int rank, const std::string& what) {
  try {
    throw;
  } catch (const CollectiveError& error) {
    return {error.failure(), rank, error.what()};
  } catch (const std::exception& error) {
    return {tensor::means_no_memory(error) ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend, rank,
            text(what, " failed on rank ", rank, ": ", error_line(error))};
  }
}

// The message is short enough for std::string not to allocate.
Failure failure_without_memory(int rank) noexcept { return {CollectiveFailure::kOutOfMemory, rank, "no memory"}; }

Failure end_of_group(int rank, const char* when) noexcept {
  try {
    return {CollectiveFailure::kAborted, rank, text("rank ", rank, " shut the group down", when)};
  } catch (const std::bad_alloc&) {
    return {CollectiveFailure::kAborted, rank, "no memory"};
  }
}

}  // namespace accel::comm::ucx
