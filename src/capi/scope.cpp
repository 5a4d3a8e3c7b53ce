#include "capi/scope.hpp"

#include <thread>
#include <utility>

#include "base/error.hpp"
#include "capi/guard.hpp"

struct accel_scope final : accel::capi::Handle<accel::capi::ObjectKind::kScope> {
  std::unique_ptr<accel::capi::ScopeBody> body;
  accel_scope* outer = nullptr;
  std::thread::id thread = std::this_thread::get_id();
};

namespace accel::capi {
namespace {

accel_scope*& innermost() {
  thread_local accel_scope* scope = nullptr;
  return scope;
}

}  // namespace

accel_scope_t* open_scope(std::unique_ptr<ScopeBody> body) {
  auto scope = std::make_unique<accel_scope>();
  scope->body = std::move(body);
  scope->outer = innermost();
  innermost() = scope.get();
  return scope.release();
}

ScopeBody& body_of(accel_scope_t* scope) {
  check(scope, "scope");
  require(scope->thread == std::this_thread::get_id(), Status::kInvalidState,
          "scope was opened by another thread; use it there");
  return *scope->body;
}

ACCEL_FUNCTION accel_status_t accel_scope_end(accel_scope_t* scope) {
  return guarded(__func__, [&] {
    check(scope, "scope");
    require(scope->thread == std::this_thread::get_id(), Status::kInvalidState,
            "scope was opened by another thread; end it there");
    require(scope == innermost(), Status::kInvalidState,
            "scope is not this thread's innermost open one; end the scopes that were opened after it first");
    const std::unique_ptr<accel_scope> ended(scope);  // gone also when its work fails
    innermost() = ended->outer;
    ended->body->finish();
    return ACCEL_OK;
  });
}

}  // namespace accel::capi
