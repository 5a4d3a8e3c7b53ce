// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/process_check.hpp"

#include <pthread.h>

#include <atomic>
#include <new>

#include "base/error.hpp"
#include "capi/calls/loaded_libtorch.hpp"
#include "os/process_use.hpp"
#include "tensor/device/accelerator_library.hpp"

namespace accel::capi {
namespace {

std::atomic<bool> made_state{false};

void mark_child() { process_use.store(ProcessUse::kForkedOff, std::memory_order_relaxed); }

void check_process() {
  require(!is_forked_off(), Status::kInvalidState,
          "this process was forked off one that had used libaccel, whose threads and locks do not exist here; after "
          "fork() only exec() is possible: fork before the first call, or start the process with exec()");
  require_matching_libtorch();
  tensor::load_accelerators_on_demand();
  // Before the mark, so that no child misses it. Threads that come here at once register it twice, which does no harm.
  if (pthread_atfork(nullptr, nullptr, mark_child) != 0) throw std::bad_alloc();
  process_use.store(ProcessUse::kChecked, std::memory_order_relaxed);
}

}  // namespace

void require_usable_process() {
  if (process_use.load(std::memory_order_relaxed) != ProcessUse::kChecked) check_process();
}

void accept_forked_off() noexcept { process_use.store(ProcessUse::kChecked, std::memory_order_relaxed); }

void note_state() noexcept { made_state.store(true, std::memory_order_relaxed); }

bool has_made_state() noexcept { return made_state.load(std::memory_order_relaxed); }

}  // namespace accel::capi
