// SPDX-License-Identifier: Apache-2.0
#include "tensor/external_alias.hpp"

#include <array>
#include <mutex>

namespace accel::tensor {
namespace {

// A storage has no field for marks of our own. This uses received_cuda, "memory of another process", which also means
// that there may be unknown writers, and which LibTorch reads on CUDA only.
class Mark {
 public:
  explicit Mark(const at::Tensor& tensor)
      : storage_(*tensor.storage().unsafeGetStorageImpl()), lock_(mutex_of(storage_)) {}
  bool is_set() const { return storage_.received_cuda(); }
  void set() { storage_.set_received_cuda(true); }

 private:
  // The mark is a plain bool, so its users need a lock.
  static std::mutex& mutex_of(const c10::StorageImpl& storage) {
    static std::array<std::mutex, 64> mutexes;
    return mutexes[reinterpret_cast<uintptr_t>(&storage) / sizeof(c10::StorageImpl) % mutexes.size()];
  }

  c10::StorageImpl& storage_;
  std::lock_guard<std::mutex> lock_;
};

bool has_marks(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.has_storage(); }

}  // namespace

void mark_externally_aliased(const at::Tensor& tensor) {
  if (has_marks(tensor)) Mark(tensor).set();
}

bool is_externally_aliased(const at::Tensor& tensor) { return !has_marks(tensor) || Mark(tensor).is_set(); }

}  // namespace accel::tensor
