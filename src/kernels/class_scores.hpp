// SPDX-License-Identifier: Apache-2.0
// Class scores: the softmax of a cross entropy's scores, by our kernels on the CPU and by LibTorch's operators on other
// devices. Where the ranks of a group have some classes each, the sums of a row are joined by one collective (Shoeybi
// et al., "Megatron-LM", 2019, section 3).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace accel::kernels {

enum class LossReduction : uint8_t { kNone, kMean, kSum };

// The classes of this rank, of the ranks that share all classes.
struct ClassShare {
  int64_t begin = 0, size = 0, whole = 0;  // the first one, the number of its classes and of all
  int64_t ranks = 1;
  // Returns what each rank passes, [ranks, ...]. Collective among them.
  std::function<at::Tensor(const at::Tensor& own)> gather;
};

// Checked by the caller; all on one device.
struct CrossEntropy {
  at::Tensor target;        // [rows], int64
  at::Tensor class_weight;  // of all classes, or undefined
  LossReduction reduction = LossReduction::kMean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  bool uses_operators = false;              // also on the CPU, where there are kernels for the softmax
  std::shared_ptr<const ClassShare> share;  // null: the scores are of all classes
};

// float64 for float64, else float32: the dtype of losses, sums and the gradients of weight and bias.
at::ScalarType sum_dtype(const at::Tensor& input);

// The scores of some rows, [rows, classes].
class ClassScores {
 public:
  // `target` has classes of all ranks; `class_weight` is of sum_dtype(), or undefined.
  ClassScores(const CrossEntropy& problem, at::Tensor scores, const at::Tensor& target, const at::Tensor& class_weight);

  // The columns of RowSums, over the classes of all ranks.
  at::Tensor measure() const;
  // In place; `factors` has the columns of RowFactors.
  const at::Tensor& differentiate(const at::Tensor& sums, const at::Tensor& factors) const;

 private:
  template <typename Work>
  void for_all_rows(const Work& work) const;
  at::Tensor measure_by_kernels() const;
  at::Tensor measure_by_operators() const;
  at::Tensor joined(const at::Tensor& own) const;
  const at::Tensor& differentiate_by_operators(const at::Tensor& sums, const at::Tensor& factors) const;

  at::Tensor scores_;
  at::Tensor target_;        // -1: a class of another rank
  at::Tensor class_weight_;  // of the classes of this rank
  std::shared_ptr<const ClassShare> share_;
  bool is_smoothed_;
  bool has_kernels_;
};

}  // namespace accel::kernels
