// Class scores: the softmax of a cross entropy's scores, by our kernels on the CPU and by LibTorch's operators on other
// devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accel::kernels {

enum class LossReduction : uint8_t { kNone, kMean, kSum };

// Checked by the caller; all on one device.
struct CrossEntropy {
  at::Tensor target;        // [rows], int64
  at::Tensor class_weight;  // [classes], or undefined
  LossReduction reduction = LossReduction::kMean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  bool uses_operators = false;  // also on the CPU, where there are kernels for the softmax
};

// float64 for float64, else float32: the dtype of losses, sums and the gradients of weight and bias.
at::ScalarType sum_dtype(const at::Tensor& input);

// The scores of some rows, [rows, classes].
class ClassScores {
 public:
  // `class_weight` is of sum_dtype(), or undefined.
  ClassScores(const CrossEntropy& problem, at::Tensor scores, at::Tensor target, at::Tensor class_weight);

  // The columns of RowSums.
  at::Tensor measure() const;
  // In place; `factors` has the columns of RowFactors.
  const at::Tensor& differentiate(const at::Tensor& sums, const at::Tensor& factors) const;

 private:
  template <typename Work>
  void for_all_rows(const Work& work) const;
  at::Tensor measure_by_kernels() const;
  at::Tensor measure_by_operators() const;
  const at::Tensor& differentiate_by_operators(const at::Tensor& sums, const at::Tensor& factors) const;

  at::Tensor scores_, target_, class_weight_;
  bool is_smoothed_;
  bool has_kernels_;
};

}  // namespace accel::kernels
