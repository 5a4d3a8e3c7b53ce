// SPDX-License-Identifier: Apache-2.0
// Callback of the application with its user_data and destroy. destroy runs exactly once, with the last owner.
#pragma once

#include <memory>
#include <utility>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/thread_error.hpp"
#include "nn/recompute/early_stop.hpp"

namespace accel::capi {

template <typename Function>
class Callback {
 public:
  // Takes ownership of user_data at once, so that destroy runs even if something fails later.
  Callback(Function function, void* user_data, accel_destroy_fn destroy)
      : function_(function), user_data_(std::shared_ptr<void>(user_data, [destroy](void* data) {
          if (destroy != nullptr) destroy(data);
        })) {}

  // Another function of the same registration, with the same user_data.
  template <typename Other>
  Callback<Other> with(Other other) const {
    return Callback<Other>(other, user_data_);
  }

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const {
    const nn::NoEarlyStop no_exception_crosses;
    return function_(std::forward<Arguments>(arguments)..., user_data_.get());
  }

  // Calls a function that returns a number or a status; `name` is for messages. A negative status is thrown, and the
  // outer call returns it unchanged, with the message that the function set.
  template <typename... Arguments>
  auto checked(const char* name, Arguments&&... arguments) const {
    const uint64_t errors_before = thread_error().count;
    const auto result = (*this)(std::forward<Arguments>(arguments)...);
    if (result < 0) throw_callback_error(result, errors_before, name);
    return result;
  }

 private:
  template <typename Other>
  friend class Callback;
  Callback(Function function, std::shared_ptr<void> user_data)
      : function_(function), user_data_(std::move(user_data)) {}

  Function function_;
  std::shared_ptr<void> user_data_;
};

}  // namespace accel::capi
