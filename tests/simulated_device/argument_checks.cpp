// SPDX-License-Identifier: Apache-2.0
#include "argument_checks.hpp"

#include <set>
#include <string>

#include "host_tensor.hpp"

namespace simulated_device {
namespace {

using at::Tensor;
using c10::IValue;

bool is_fused_optimizer(const c10::OperatorHandle& op) {
  return op.operator_name().name.rfind("aten::_fused_", 0) == 0 &&
         op.schema().argumentIndexWithName("grads").has_value();
}

// Operators that take tensors of the CPU, of any size.
bool takes_host_tensors(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::index",
                                              "aten::index_put",
                                              "aten::index_put_",
                                              "aten::_unsafe_index",
                                              "aten::_unsafe_index_put",
                                              "aten::_index_put_impl_",
                                              "aten::_pack_padded_sequence"};
  return names.count(op.operator_name().name) > 0;
}

// Operators that take a tensor of the CPU that is one number: those that go element by element, also over lists.
bool takes_host_numbers(const c10::OperatorHandle& op) {
  // LibTorch computes them element by element, and gives them no tag that says so.
  static const std::set<std::string> names = {"aten::__and__",       "aten::__iand__",
                                              "aten::__ior__",       "aten::__irshift__",
                                              "aten::__or__",        "aten::bernoulli_",
                                              "aten::copysign_",     "aten::eq_",
                                              "aten::fill_",         "aten::floor_divide",
                                              "aten::floor_divide_", "aten::ge_",
                                              "aten::gt_",           "aten::heaviside_",
                                              "aten::index_fill",    "aten::index_fill_",
                                              "aten::le_",           "aten::lt_",
                                              "aten::masked_fill",   "aten::masked_fill_",
                                              "aten::mse_loss",      "aten::ne_",
                                              "aten::rsub",          "aten::smooth_l1_loss",
                                              "aten::true_divide_",  "aten::binary_cross_entropy"};
  const std::string& name = op.operator_name().name;
  return op.hasTag(at::Tag::pointwise) || name.rfind("aten::_foreach_", 0) == 0 || names.count(name) > 0;
}

template <typename Visit>
void for_each_tensor(const IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
      if (tensor) visit(*tensor);
  }
}

[[noreturn]] void refuse_devices(const c10::OperatorHandle& op, c10::Device one, c10::Device other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ",
              other, "! (in ", op.operator_name(), ")");
}

}  // namespace

std::optional<c10::Device> common_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const bool is_fused = is_fused_optimizer(op);
  std::optional<c10::Device> device, of_number, of_tensor;
  for (size_t index = 0; index < arguments.size(); ++index) {
    const bool is_rate = is_fused && arguments[index].name() == "lr";  // read by the host, where it is on the CPU
    for_each_tensor(torch::jit::peek(stack, index, arguments.size()), [&](const Tensor& tensor) {
      if (!is_on_device(tensor)) {
        if (tensor.defined() && !is_rate) (tensor.dim() > 0 ? of_tensor : of_number) = tensor.device();
      } else if (!device) {
        device = tensor.device();
      } else if (*device != tensor.device()) {
        refuse_devices(op, *device, tensor.device());
      }
    });
  }
  if (!device || takes_host_tensors(op)) return device;
  if (of_tensor) refuse_devices(op, *device, *of_tensor);
  if (of_number && !takes_host_numbers(op)) refuse_devices(op, *device, *of_number);
  return device;
}

void check_fused_optimizer(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!is_fused_optimizer(op)) return;
  const auto& arguments = op.schema().arguments();
  const std::vector<Tensor> parameters = torch::jit::peek(stack, 0, arguments.size()).toTensorVector();
  for (size_t index = 0; index < arguments.size(); ++index) {
    const IValue& value = torch::jit::peek(stack, index, arguments.size());
    if (!value.isTensorList()) continue;
    const std::vector<Tensor> tensors = value.toTensorVector();
    const std::string& name = arguments[index].name();
    for (size_t place = 0; place < tensors.size(); ++place) {
      const Tensor& tensor = tensors[place];
      if (name == "state_steps") {
        TORCH_CHECK(tensor.scalar_type() == at::kFloat, op.operator_name(), ": state_steps are ", tensor.scalar_type(),
                    "; expected Float");
        continue;
      }
      TORCH_CHECK(tensor.scalar_type() == parameters[0].scalar_type() && tensor.is_non_overlapping_and_dense() &&
                      tensor.strides() == parameters[place].strides(),
                  op.operator_name(), ": ", name, " must have the dtype, the device and the layout of the parameters");
    }
  }
}

}  // namespace simulated_device
