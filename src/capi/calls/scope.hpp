// SPDX-License-Identifier: Apache-2.0
// Scopes: begin...end pairs, as Python's `with`. Each thread has a stack of open scopes.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/object.hpp"

namespace accel::capi {

// The work of a scope at its end. finish() may throw (a failed barrier); the destructor only cleans up.
class ScopeBody {
 public:
  virtual ~ScopeBody() = default;
  virtual void finish() {}
};

// Opens a scope on this thread for a body that has begun.
accel_scope_t* open_scope(std::unique_ptr<ScopeBody> body);

// The body of an open scope of this thread.
ScopeBody& body_of(accel_scope_t* scope);

// A body with a guard object of the engine: constructed in place, finished if it has finish(), and destroyed at the
// end.
template <typename Guard>
class GuardScope final : public ScopeBody {
 public:
  template <typename... Arguments>
  explicit GuardScope(Arguments&&... arguments) : guard_(std::forward<Arguments>(arguments)...) {}
  void finish() override { finish(guard_, 0); }
  Guard& guard() { return guard_; }

 private:
  template <typename Finishing>
  static auto finish(Finishing& guard, int) -> decltype(guard.finish()) {
    return guard.finish();
  }
  template <typename Other>
  static void finish(Other& /*guard*/, long) {}

  Guard guard_;
};

template <typename Guard, typename... Arguments>
accel_scope_t* open_scope(Arguments&&... arguments) {
  return open_scope(std::make_unique<GuardScope<Guard>>(std::forward<Arguments>(arguments)...));
}

// The guard of an open scope of this thread; `kind` and the function `origin`, which opens such scopes, are for the
// error of another kind.
template <typename Guard>
Guard& guard_of(accel_scope_t* scope, const char* kind, const char* origin) {
  auto* const body = dynamic_cast<GuardScope<Guard>*>(&body_of(scope));
  require(body != nullptr, Status::kInvalidArgument, "scope is not one of ", kind, "; expected what ", origin,
          "() opened");
  return body->guard();
}

}  // namespace accel::capi
