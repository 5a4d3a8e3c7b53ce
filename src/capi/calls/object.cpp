// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/object.hpp"

#include <array>
#include <new>

namespace accel::capi {
namespace {

std::atomic<int64_t> live_count{0};

// The latest released objects, oldest first from `next_released` on.
constexpr size_t kRemembered = 256;
std::array<std::atomic<void*>, kRemembered> released{};
std::atomic<size_t> next_released{0};

}  // namespace

Object::Object(ObjectKind kind) : kind_(kind) { live_count.fetch_add(1, std::memory_order_relaxed); }

Object::~Object() { live_count.fetch_sub(1, std::memory_order_relaxed); }

void* Object::operator new(size_t bytes) { return ::operator new(bytes); }

void Object::operator delete(void* memory) noexcept {
  new (memory) std::atomic<ObjectKind>(ObjectKind::kReleased);  // where kind_ was
  const size_t place = next_released.fetch_add(1, std::memory_order_relaxed) % kRemembered;
  ::operator delete(released[place].exchange(memory, std::memory_order_acq_rel));
}

int64_t live_objects() { return live_count.load(std::memory_order_relaxed); }

const char* object_kind_name(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kReleased:
      return "released handle";
    case ObjectKind::kError:
      return "error";
    case ObjectKind::kScope:
      return "scope";
    case ObjectKind::kState:
      return "state";
    case ObjectKind::kTensor:
      return "tensor";
    case ObjectKind::kModule:
      return "module";
    case ObjectKind::kOptimizer:
      return "optimizer";
    case ObjectKind::kScheduler:
      return "scheduler";
    case ObjectKind::kDataset:
      return "dataset";
    case ObjectKind::kSampler:
      return "sampler";
    case ObjectKind::kDataloader:
      return "dataloader";
    case ObjectKind::kWork:
      return "work";
    case ObjectKind::kParameters:
      return "parameters";
    case ObjectKind::kGenerator:
      return "generator";
    case ObjectKind::kMesh:
      return "mesh";
    case ObjectKind::kLoop:
      return "loop";
    case ObjectKind::kOffloadHook:
      return "offload hook";
    case ObjectKind::kWeightStream:
      return "weight stream";
    case ObjectKind::kTracker:
      return "tracker";
    case ObjectKind::kLogger:
      return "logger";
    case ObjectKind::kProgressBar:
      return "progress bar";
    case ObjectKind::kProfile:
      return "profile";
    case ObjectKind::kGenerationBatch:
      return "generation batch";
    case ObjectKind::kTokenizer:
      return "tokenizer";
    case ObjectKind::kDecodeStream:
      return "decode stream";
  }
  return "pointer that is not a handle";
}

void refuse_handle(const Object* handle, ObjectKind expected, const char* name) {
  require(handle != nullptr, Status::kInvalidArgument, name, " is NULL; expected a ", object_kind_name(expected));
  require(can_be_object(handle), Status::kInvalidHandle, name, " is not a handle; expected a ",
          object_kind_name(expected));
  fail(Status::kInvalidHandle, name, " is a ", object_kind_name(handle->kind()), "; expected a ",
       object_kind_name(expected));
}

}  // namespace accel::capi
