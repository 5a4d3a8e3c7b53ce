// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/scope.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "os/process_use.hpp"

namespace accel::capi {

std::atomic<int64_t> scopes_given_up{0};

// Only the thread that opened it accesses it, except `given_up`.
struct OpenScope {
  std::unique_ptr<ScopeBody> body;
  accel_scope* handle = nullptr;
  std::atomic<bool> given_up{false};  // or closed: the handle is not this record's any more
};

namespace {

struct ClosedScope {
  std::unique_ptr<ScopeBody> body;
  accel_scope* handle;  // null when it was released
};

// The open scopes of a thread, the outermost first. Scopes that are open when the thread ends are ended there, because
// guards restore the state of their own thread; their handles stay until they are released.
class ThreadScopes {
 public:
  ~ThreadScopes() {
    while (!open_.empty()) close_innermost();
  }

  size_t size() const { return open_.size(); }
  bool contains(const std::shared_ptr<OpenScope>& scope) const {
    return std::find(open_.begin(), open_.end(), scope) != open_.end();
  }
  const OpenScope& innermost() const { return *open_.back(); }
  bool innermost_is_given_up() const { return !open_.empty() && open_.back()->given_up.load(); }

  void push(std::shared_ptr<OpenScope> scope) { open_.push_back(std::move(scope)); }

  // Its end is undone when the body is dropped.
  ClosedScope close_innermost() {
    const std::shared_ptr<OpenScope> scope = std::move(open_.back());
    open_.pop_back();
    const bool was_given_up = scope->given_up.exchange(true);
    if (was_given_up) scopes_given_up.fetch_sub(1, std::memory_order_relaxed);
    return {std::move(scope->body), was_given_up ? nullptr : scope->handle};
  }

  size_t outside = 0;  // how many were open when the innermost accel_scope_call() began

 private:
  std::vector<std::shared_ptr<OpenScope>> open_;
};

ThreadScopes& thread_scopes() {
  thread_local ThreadScopes scopes;
  return scopes;
}

}  // namespace
}  // namespace accel::capi

struct accel_scope final : accel::capi::Handle<accel::capi::ObjectKind::kScope> {
  explicit accel_scope(std::shared_ptr<accel::capi::OpenScope> open) : open(std::move(open)) {}
  const std::shared_ptr<accel::capi::OpenScope> open;
};

namespace accel::capi {
namespace {

const OpenScope& require_of_this_thread(accel_scope_t* scope) {
  const std::shared_ptr<OpenScope>& open = check(scope, "scope").open;
  require(thread_scopes().contains(open), Status::kInvalidState,
          "scope was opened by another thread; end it there, or give it up with accel_scope_release()");
  return *open;
}

// Ends all scopes but the first `outside` ones. Ends all even if one fails, and throws the first failure.
void end_scopes(ThreadScopes& scopes, size_t outside) {
  std::exception_ptr failure;
  while (scopes.size() > outside) try {
      const ClosedScope closed = scopes.close_innermost();
      const std::unique_ptr<accel_scope> handle(closed.handle);
      if (handle != nullptr) closed.body->finish();
    } catch (const std::exception&) {
      if (!failure) failure = std::current_exception();
    }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

accel_scope_t* open_scope(std::unique_ptr<ScopeBody> body) {
  auto open = std::make_shared<OpenScope>();
  auto handle = std::make_unique<accel_scope>(open);
  open->handle = handle.get();
  open->body = std::move(body);
  thread_scopes().push(std::move(open));
  return handle.release();
}

ScopeBody& body_of(accel_scope_t* scope) { return *require_of_this_thread(scope).body; }

void leave_scopes_given_up() noexcept {
  if (CurrentCall::function() != nullptr) return;
  ThreadScopes& scopes = thread_scopes();
  while (scopes.innermost_is_given_up()) scopes.close_innermost();
}

ACCEL_FUNCTION accel_status_t accel_scope_end(accel_scope_t* scope) {
  return guarded(__func__, [&] {
    const OpenScope& open = require_of_this_thread(scope);
    ThreadScopes& scopes = thread_scopes();
    while (scopes.size() > scopes.outside && scopes.innermost_is_given_up()) scopes.close_innermost();
    require(&open == &scopes.innermost(), Status::kInvalidState,
            "scope is not this thread's innermost open one; end the scopes that were opened after it first");
    require(scopes.size() > scopes.outside, Status::kInvalidState,
            "scope was opened before the accel_scope_call() around this call; end it after that");
    const ClosedScope closed = scopes.close_innermost();
    const std::unique_ptr<accel_scope> ended(scope);  // gone also when its work fails
    closed.body->finish();
  });
}

ACCEL_FUNCTION accel_status_t accel_scope_call(accel_scope_fn body, void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_scope_fn> callback(body, user_data, destroy);
    check_pointer(body, "body");
    ThreadScopes& scopes = thread_scopes();
    const size_t outside_before = std::exchange(scopes.outside, scopes.size());
    accel_status_t status = ACCEL_OK;
    std::exception_ptr failure;
    try {
      status = callback.checked("of accel_scope_call");
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    try {
      end_scopes(scopes, scopes.outside);
    } catch (const std::exception&) {
      if (!failure) failure = std::current_exception();
    }
    scopes.outside = outside_before;
    if (failure) std::rethrow_exception(failure);
    return status;
  });
}

ACCEL_FUNCTION void accel_scope_release(accel_scope_t* scope) {
  if (is_forked_off() || !can_be_object(scope) || scope->kind() != accel_scope::kKind) return;
  const std::unique_ptr<accel_scope> released(scope);
  if (!scope->open->given_up.exchange(true)) scopes_given_up.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace accel::capi
