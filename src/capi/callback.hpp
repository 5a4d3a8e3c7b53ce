// A host callback with its user_data and destroy. destroy runs exactly once, when the last owner goes.
#pragma once

#include <memory>
#include <utility>

#include "accel.h"
#include "capi/guard.hpp"
#include "capi/thread_error.hpp"

namespace accel::capi {

template <typename Function>
class Callback {
 public:
  // Takes user_data over at once: if something fails later, destroy has run.
  Callback(Function function, void* user_data, accel_destroy_fn destroy)
      : function_(function), user_data_(std::shared_ptr<void>(user_data, [destroy](void* data) {
          if (destroy != nullptr) destroy(data);
        })) {}

  // Another function of the same registration, which shares user_data.
  template <typename Other>
  Callback<Other> with(Other other) const {
    return Callback<Other>(other, user_data_);
  }

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const {
    return function_(std::forward<Arguments>(arguments)..., user_data_.get());
  }

  // Calls a function that returns a number or a status, named `name` in messages. A negative status leaves as an
  // exception that comes back from the outer call unchanged, with the message that the function set.
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
