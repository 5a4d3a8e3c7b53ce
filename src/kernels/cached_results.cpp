// SPDX-License-Identifier: Apache-2.0
#include "kernels/cached_results.hpp"

#include "base/error.hpp"

namespace accel::kernels {
namespace {

thread_local CachedResults* current_results = nullptr;

// Another tensor with the same memory, which also counts the changes of the first. The alias gets the part of autograd
// of its own.
at::Tensor alias_of(const at::Tensor& tensor) {
  c10::TensorImpl& tensor_impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(tensor_impl.shallow_copy_and_detach(tensor_impl.version_counter(),
                                                        /*allow_tensor_metadata_change=*/true));
}

}  // namespace

CachedResults::Scope::Scope(CachedResults* results, bool takes) : former_(current_results) {
  current_results = results;
  if (results == nullptr) return;
  results->takes_ = takes;
  results->next_ = 0;
}

CachedResults::Scope::~Scope() { current_results = former_; }

CachedResults* CachedResults::current() { return current_results; }

void CachedResults::keep(uint64_t call, const std::vector<at::Tensor>& results) {
  for (const at::Tensor& tensor : results) {
    const at::Tensor alias = alias_of(tensor);
    kept_.push_back({call, alias, static_cast<uint32_t>(alias._version())});
  }
}

at::Tensor CachedResults::take(uint64_t call) {
  require(next_ < kept_.size() && kept_[next_].call == call, Status::kInvalidState,
          "the forward that is computed again calls other matmuls than before, at number ", next_, " of ", kept_.size(),
          "; expected the same calls with the same shapes each time");
  const Kept& kept = kept_[next_++];
  require(
      static_cast<uint32_t>(kept.tensor._version()) == kept.version, Status::kUnsupported,
      "the result of matmul number ", next_ - 1, " of shape ", kept.tensor.sizes(),
      " was changed in place and cannot be cached; recompute all instead, or use the operator that makes a new tensor");
  return alias_of(kept.tensor);
}

}  // namespace accel::kernels
