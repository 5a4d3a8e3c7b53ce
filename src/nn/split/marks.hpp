// SPDX-License-Identifier: Apache-2.0
// Marks: what is known of tensors, or of their storages, by their identity.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace accel::nn {

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

// Values that are gone are forgotten at the next mark. Values hold communicators, which must end before the process
// does: others own them where they can. A static object of this type is never destroyed, since tensors may outlive it.
template <typename Weak, typename Value>
class Marks {
 public:
  using Pointer = std::shared_ptr<const Value>;

  void set(Weak weak, const Pointer& value, bool owns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto mark = marks_.begin(); mark != marks_.end();)
      mark = mark->second.weak.expired() ? marks_.erase(mark) : std::next(mark);
    const void* const key = weak._unsafe_get_target();
    marks_.insert_or_assign(key, Mark{std::move(weak), value, owns ? value : nullptr});
  }
  // Nothing for what has no mark; null if nobody owns its value any more.
  std::optional<Pointer> find(const void* key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = marks_.find(key);
    if (found == marks_.end() || found->second.weak.expired()) return std::nullopt;
    return found->second.value.lock();
  }

 private:
  struct Mark {
    Weak weak;
    std::weak_ptr<const Value> value;
    Pointer owned;  // null: others own it
  };

  std::mutex mutex_;
  std::unordered_map<const void*, Mark> marks_;
};

}  // namespace accel::nn
