// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/recent_errors.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "base/text_check.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/values/value.hpp"
#include "os/process_use.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

constexpr int64_t kKept = 64;

struct KeptError {
  int64_t thread;
  ThreadError error;
};

std::mutex kept_lock;
int64_t kept_count = 0;
std::array<KeptError, kKept> kept_errors;  // error number n is at n % kKept

// Messages may quote bytes of the application that are not text.
std::string printable(std::string text) {
  for (size_t bad; (bad = first_bad_byte(text)) != text.size();) text[bad] = '?';
  return text;
}

c10::IValue value_of(const RecentError& error) {
  auto map = tree::new_map();
  map.insert("number", error.number);
  map.insert("thread", error.thread);
  map.insert("function", error.function);
  map.insert("status", static_cast<int64_t>(error.status));
  map.insert("rank", static_cast<int64_t>(error.rank));
  map.insert("message", printable(error.message));
  return map;
}

}  // namespace

void note_error(const ThreadError& error) noexcept {
  if (is_forked_off()) return;  // another thread of the parent may have held the lock
  const int64_t thread = syscall(SYS_gettid);
  const std::lock_guard<std::mutex> held(kept_lock);
  kept_count++;
  KeptError& place = kept_errors[static_cast<size_t>(kept_count % kKept)];
  place.thread = thread;
  place.error.status = error.status;
  place.error.rank = error.rank;
  place.error.function = error.function;
  std::memcpy(place.error.message, error.message, std::strlen(error.message) + 1);
}

std::vector<RecentError> recent_errors(int64_t after) {
  std::vector<RecentError> errors;
  errors.reserve(kKept);
  const std::lock_guard<std::mutex> held(kept_lock);
  for (int64_t number = std::max(kept_count - kKept, int64_t{0}) + 1; number <= kept_count; number++) {
    if (number <= after) continue;
    const KeptError& place = kept_errors[static_cast<size_t>(number % kKept)];
    errors.push_back({number, place.thread, place.error.status, place.error.rank, place.error.function,
                      std::string(place.error.message)});
  }
  return errors;
}

ACCEL_FUNCTION accel_status_t accel_recent_errors(int64_t after, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    auto list = tree::new_list();
    for (const RecentError& error : recent_errors(after)) list.push_back(value_of(error));
    return from_ivalue(list);
  });
}

}  // namespace accel::capi
