// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_activations.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "nn/low_precision/fp8_products.hpp"
#include "tensor/autograd/plain_operators.hpp"

namespace accel::nn {
namespace {

constexpr int64_t kFewest = 16;  // numbers of a row; a scale takes the bytes of four

bool has_rows(const at::Tensor& tensor) {
  return tensor.dim() >= 2 && tensor.size(-1) >= kFewest && tensor.numel() > 0 &&
         is_cast_to_fp8(tensor.scalar_type()) && tensor.layout() == at::kStrided && tensor.has_storage() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

// Both parts are saved by the hooks around, so that a forward that is computed again keeps neither.
class ActivationIn8Bits final : public tensor::SavedTensorStandIn {
 public:
  ActivationIn8Bits(const at::Tensor& activation, Fp8Overflows& overflows)
      : ActivationIn8Bits(
            fp8_cast(activation.reshape({-1, activation.size(-1)}), {at::kFloat8_e4m3fn, kernels::Fp8Granularity::kRow},
                     /*of_columns=*/false, {}, overflows),
            activation) {}

  at::Tensor tensor() override {
    const kernels::Fp8Matrix matrix{values_.get(), scales_.get()};
    const tensor::PlainOperators plain;
    return fp8_numbers(matrix, dtype_).view(sizes_);
  }

 private:
  ActivationIn8Bits(const kernels::Fp8Matrix& matrix, const at::Tensor& activation)
      : values_(matrix.values),
        scales_(matrix.scales),
        dtype_(activation.scalar_type()),
        sizes_(activation.sizes().vec()) {}

  tensor::SavedActivation values_, scales_;
  at::ScalarType dtype_;
  std::vector<int64_t> sizes_;
};

}  // namespace

Fp8Activations::Fp8Activations(const at::Tensor& input, std::shared_ptr<Fp8Overflows> overflows) {
  if (!at::GradMode::is_enabled() || !has_rows(input)) return;
  hooks_.emplace([dim = input.dim(), overflows = std::move(overflows)](
                     const at::Tensor& saved) -> std::unique_ptr<tensor::SavedTensorStandIn> {
    if (saved.dim() != dim || !has_rows(saved)) return nullptr;
    const tensor::PlainOperators plain;
    return std::make_unique<ActivationIn8Bits>(saved.detach(), *overflows);
  });
}

}  // namespace accel::nn
