#include "nn/low_precision/fp8_activations.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "nn/low_precision/fp8_layers.hpp"
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

std::optional<Fp8Activations> scope_for(const at::Tensor& input) {
  const auto layers = Fp8Layers::compressing(input.device().type());
  if (layers == nullptr) return std::nullopt;
  return std::optional<Fp8Activations>(std::in_place, input, layers->overflow_count());
}

// A kernel in front of that of an operator whose first argument is the input.
template <typename Operator, typename Schema = typename Operator::schema>
struct Route;
template <typename Operator, typename Result, typename... Arguments>
struct Route<Operator, Result(const at::Tensor&, Arguments...)> {
  static Result call(c10::DispatchKeySet keys, const at::Tensor& input, Arguments... arguments) {
    const auto scope = scope_for(input);
    return Operator::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFp8Route), input,
                                std::forward<Arguments>(arguments)...);
  }
};

// A gate, whose factors are both activations; other products have tables and masks.
at::Tensor route_gate(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second) {
  const bool is_gate = first.requires_grad() && second.requires_grad() && first.sizes().equals(second.sizes());
  const auto scope = is_gate ? scope_for(first) : std::nullopt;
  return at::_ops::mul_Tensor::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFp8Route), first,
                                          second);
}

}  // namespace

void route_activations(torch::Library& operators) {
  operators.impl("layer_norm", TORCH_FN((&Route<at::_ops::layer_norm>::call)));
  operators.impl("native_layer_norm", TORCH_FN((&Route<at::_ops::native_layer_norm>::call)));
  operators.impl("rms_norm", TORCH_FN((&Route<at::_ops::rms_norm>::call)));
  operators.impl("gelu", TORCH_FN((&Route<at::_ops::gelu>::call)));
  operators.impl("silu", TORCH_FN((&Route<at::_ops::silu>::call)));
  operators.impl("dropout", TORCH_FN((&Route<at::_ops::dropout>::call)));
  operators.impl("native_dropout", TORCH_FN((&Route<at::_ops::native_dropout>::call)));
  operators.impl("scaled_dot_product_attention", TORCH_FN((&Route<at::_ops::scaled_dot_product_attention>::call)));
  operators.impl("mul.Tensor", TORCH_FN(route_gate));
}

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
