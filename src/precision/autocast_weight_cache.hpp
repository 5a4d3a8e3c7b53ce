// The half-precision casts of a model's weights, kept from one forward to the next. Autocast asks for the cast of each
// weight in each forward; while the weight is the same it is given the kept one, and an optimizer can write the cast
// in the pass that updates the weight.
//
// A cast is right while the weight has the memory and the version that it had: whatever LibTorch and this library do to
// a tensor counts its version up. What the host program does by address (tensor/exposed_memory.hpp) does not, so that
// casts of such weights are kept within a group of micro-batches only.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <unordered_map>

namespace accel::precision {

class AutocastWeightCache {
 public:
  AutocastWeightCache();
  ~AutocastWeightCache();
  AutocastWeightCache(const AutocastWeightCache&) = delete;
  AutocastWeightCache& operator=(const AutocastWeightCache&) = delete;

  // While it lives, the autocast regions of this thread use `casts`, or none where that is null.
  class Scope {
   public:
    explicit Scope(AutocastWeightCache* casts);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    AutocastWeightCache* former_;
  };

  // A new group of micro-batches: lets go of casts that may be outdated unseen, and of those of weights that are no
  // more.
  void start_group();
  // How many there are of weights as they are now.
  size_t size();

  // The kept cast of `weight`, or one made and kept now. A tensor of its own for each caller, with shared memory.
  at::Tensor cast(const at::Tensor& weight, c10::ScalarType dtype);

  // For CastUpdate. What is taken must be put back; undefined when there is none that only this module holds.
  at::Tensor take(const at::Tensor& weight);
  void put_back(const at::Tensor& weight, at::Tensor values);

 private:
  struct Cast {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // of the weight
    uint32_t version;                                  // of the weight
    at::Tensor values;                                 // undefined while an optimizer writes it

    bool is_of(const at::Tensor& now) const;
  };

  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Cast> casts_;
};

// An optimizer's writing of the cast of a weight: taken before the weight changes, kept for the weight as it is
// afterwards. A cast that something else still reads, such as a graph whose backward is to come, is left alone.
class CastUpdate {
 public:
  explicit CastUpdate(const at::Tensor& weight);
  // Laid out like the weight; undefined when there is none to write.
  const at::Tensor& values() const { return values_; }
  // Both have been written, and the weight's version counted up.
  void keep(const at::Tensor& weight);

 private:
  AutocastWeightCache* casts_ = nullptr;  // may be gone when the values are kept again
  at::Tensor values_;
};

}  // namespace accel::precision
