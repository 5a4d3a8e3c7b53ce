// Scopes: begin...end pairs that stand for Python's `with`. Each thread has a stack of open ones.
#pragma once

#include <memory>

#include "accel.h"
#include "capi/object.hpp"

namespace accel::capi {

// What a scope does at its end. finish() may throw (a barrier that failed); the destructor only cleans up.
class ScopeBody {
 public:
  virtual ~ScopeBody() = default;
  virtual void finish() {}
};

// Opens a scope on this thread around a body that has already begun.
accel_scope_t* open_scope(std::unique_ptr<ScopeBody> body);

// What an open scope of this thread does.
ScopeBody& body_of(accel_scope_t* scope);

// A body that is a guard object: built in place, destroyed at the end.
template <typename Guard>
class GuardScope final : public ScopeBody {
 public:
  template <typename... Arguments>
  explicit GuardScope(Arguments&&... arguments) : guard_(std::forward<Arguments>(arguments)...) {}

 private:
  Guard guard_;
};

}  // namespace accel::capi
