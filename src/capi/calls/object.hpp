// SPDX-License-Identifier: Apache-2.0
// Object: the base of all handles. Each opaque type of accel.h is a C++ struct that derives from it, so that the
// checked cast below is the only one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "os/process_use.hpp"

namespace accel::capi {

// Distinct, unlikely words, which other or freed memory hardly ever contains.
enum class ObjectKind : uint32_t {
  kReleased = 0xdead0acc,
  kError = 0xacce1001,
  kScope = 0xacce1002,
  kState = 0xacce1003,
  kTensor = 0xacce1004,
  kModule = 0xacce1006,
  kOptimizer = 0xacce1007,
  kScheduler = 0xacce1008,
  kDataset = 0xacce1009,
  kSampler = 0xacce100a,
  kDataloader = 0xacce100b,
  kWork = 0xacce100c,
  kParameters = 0xacce100d,
  kGenerator = 0xacce100e,
  kMesh = 0xacce100f,
  kLoop = 0xacce1010,
  kOffloadHook = 0xacce1011,
  kWeightStream = 0xacce1012,
  kTracker = 0xacce1013,
  kLogger = 0xacce1014,
  kProgressBar = 0xacce1015,
  kProfile = 0xacce1016,
  kTokenizer = 0xacce1017,
  kDecodeStream = 0xacce1018,
  kGenerationBatch = 0xacce1019,
};

const char* object_kind_name(ObjectKind kind);  // "tensor"; "released handle"; "no handle"

int64_t live_objects();

class Object {
 public:
  explicit Object(ObjectKind kind);
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectKind kind() const { return kind_.load(std::memory_order_relaxed); }
  void retain() { owners_.fetch_add(1, std::memory_order_relaxed); }
  // Whether that was the last owner; the caller then deletes the object.
  bool release() { return owners_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  // The memory of a released object is marked and retained for a while, so that stale handles are detected. Not
  // inlined: GCC warns of a mismatch if it inlines only one of the two.
  [[gnu::noinline]] static void* operator new(size_t bytes);
  [[gnu::noinline]] static void operator delete(void* memory) noexcept;

 protected:
  ~Object();  // not virtual: objects are deleted through their own type

 private:
  std::atomic<ObjectKind> kind_;
  std::atomic<int32_t> owners_{1};
};

template <ObjectKind kind_value>
class Handle : public Object {
 public:
  static constexpr ObjectKind kKind = kind_value;
  Handle() : Object(kind_value) {}
};

// Whether an object can be at this address; only then is the memory read.
inline bool can_be_object(const void* address) {
  constexpr uintptr_t kFirstPage = 4096;
  const auto number = reinterpret_cast<uintptr_t>(address);
  return number >= kFirstPage && number % alignof(std::max_align_t) == 0;
}

[[noreturn]] void refuse_handle(const Object* handle, ObjectKind expected, const char* name);

// The checked entry of every handle: `name` is the parameter's, for the message.
template <typename T>
T& check(T* handle, const char* name) {
  if (!can_be_object(handle) || handle->kind() != T::kKind) refuse_handle(handle, T::kKind, name);
  return *handle;
}

template <typename T>
T* retain_handle(const char* function, T* handle, const char* name) noexcept {
  return guarded_value<T*>(function, nullptr, [&] {
    check(handle, name).retain();
    return handle;
  });
}

template <typename T>
void release_handle(T* handle) noexcept {
  if (is_forked_off()) return;
  if (can_be_object(handle) && handle->kind() == T::kKind && handle->release()) delete handle;
}

}  // namespace accel::capi
