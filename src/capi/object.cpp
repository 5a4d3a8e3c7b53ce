#include "capi/object.hpp"

namespace accel::capi {
namespace {
std::atomic<int64_t> live_count{0};
}

Object::Object(ObjectKind kind) : kind_(kind) { live_count.fetch_add(1, std::memory_order_relaxed); }

Object::~Object() {
  kind_.store(ObjectKind::kReleased, std::memory_order_relaxed);
  live_count.fetch_sub(1, std::memory_order_relaxed);
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
  }
  return "pointer that is no handle";
}

void refuse_handle(const Object* handle, ObjectKind expected, const char* name) {
  require(handle != nullptr, Status::kInvalidArgument, name, " is NULL; expected a ", object_kind_name(expected));
  fail(Status::kInvalidHandle, name, " is a ", object_kind_name(handle->kind()), "; expected a ",
       object_kind_name(expected));
}

}  // namespace accel::capi
