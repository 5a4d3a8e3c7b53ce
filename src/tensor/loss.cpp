#include "tensor/loss.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "base/error.hpp"
#include "tensor/dtype.hpp"

namespace accel::tensor {

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  require(logits.is_floating_point(), Status::kTypeMismatch, "logits are ", dtype_name(logits.scalar_type()),
          "; expected a floating dtype");
  require(labels.scalar_type() == c10::ScalarType::Long, Status::kTypeMismatch, "labels are ",
          dtype_name(labels.scalar_type()), "; expected int64");
  require(logits.dim() >= 1 && logits.sizes().slice(0, logits.dim() - 1) == labels.sizes(), Status::kShapeMismatch,
          "labels have shape ", labels.sizes(), " and logits ", logits.sizes(),
          "; expected logits of the labels' shape and the classes");
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}));
}

}  // namespace accel::tensor
