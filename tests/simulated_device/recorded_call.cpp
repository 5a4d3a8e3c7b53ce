// SPDX-License-Identifier: Apache-2.0
#include "recorded_call.hpp"

#include <ATen/ops/empty_strided.h>

#include <memory>

#include "device.hpp"
#include "generator.hpp"
#include "host_kernel_call.hpp"
#include "host_tensor.hpp"

namespace simulated_device {
namespace {

using at::Tensor;
using c10::IValue;

class RecordedCall {
 public:
  RecordedCall(const c10::OperatorHandle& op, HostKernel on_host, c10::DeviceIndex device,
               const std::vector<IValue>& arguments, std::vector<Tensor> results)
      : op_(op), on_host_(on_host), device_(device), results_(std::move(results)) {
    for (size_t index = 0; index < arguments.size(); ++index) {
      const c10::Argument& argument = op.schema().arguments()[index];
      if (arguments[index].isNone() && *argument.type() == *c10::OptionalType::create(c10::GeneratorType::get())) {
        arguments_.push_back(host_generator(default_generator(device), device));
        continue;
      }
      arguments_.push_back(with_tensors(arguments[index], [&](const Tensor& tensor) {
        if (!is_on_device(tensor)) return tensor;
        if (!writes(argument)) return host_alias(tensor);
        for (const auto& [impl, known] : aliases_)
          if (impl == tensor.unsafeGetTensorImpl()) return known;
        aliases_.emplace_back(tensor.unsafeGetTensorImpl(), host_alias(tensor));
        return aliases_.back().second;
      }));
    }
  }

  void run() const {
    std::vector<std::pair<const c10::TensorImpl*, Tensor>> written;  // the alias, and what is written in its place
    torch::jit::Stack stack;
    for (size_t index = 0; index < arguments_.size(); ++index) {
      const c10::Argument& argument = op_.schema().arguments()[index];
      stack.push_back(!writes(argument) ? arguments_[index]
                                        : with_tensors(arguments_[index], [&](const Tensor& tensor) {
                                            for (const auto& [alias, copy] : written)
                                              if (alias == tensor.unsafeGetTensorImpl()) return copy;
                                            written.emplace_back(tensor.unsafeGetTensorImpl(), copy_of(tensor));
                                            return written.back().second;
                                          }));
    }
    call_on_host(op_, &stack, on_host_, device_);
    size_t next = 0;
    const auto& returns = op_.schema().returns();
    const std::vector<IValue> values = torch::jit::pop(stack, returns.size());
    for (size_t index = 0; index < returns.size(); ++index) {
      if (returns[index].alias_info() && writes(returns[index])) continue;
      with_tensors(values[index], [&](const Tensor& tensor) {
        if (tensor.defined()) copy_on_host(results_.at(next++), tensor);
        return tensor;
      });
    }
    for (const auto& [alias, copy] : written) copy_on_host(results_.at(next++), copy);
  }

 private:
  template <typename Function>
  IValue with_tensors(const IValue& value, const Function& function) const {
    if (value.isTensor()) return value.toTensor().defined() ? IValue(function(value.toTensor())) : value;
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(function(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
        list.push_back(tensor ? std::optional<Tensor>(function(*tensor)) : std::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kDeviceType) return c10::Device(at::kCPU);
    if (value.isGenerator() && value.toGenerator().device().type() == kDeviceType)
      return host_generator(value.toGenerator(), device_);
    return value;
  }

  static Tensor copy_of(const Tensor& alias) {
    Tensor copy = at::empty_strided(alias.sizes(), alias.strides(), alias.options());
    copy_on_host(copy, alias);
    return copy;
  }

  const c10::OperatorHandle op_;
  const HostKernel on_host_;
  const c10::DeviceIndex device_;
  std::vector<std::pair<const c10::TensorImpl*, Tensor>> aliases_;  // of what is written
  std::vector<IValue> arguments_;
  std::vector<Tensor> results_;
};

}  // namespace

std::function<void()> recorded_call(const c10::OperatorHandle& op, HostKernel on_host, c10::DeviceIndex device,
                                    const std::vector<IValue>& arguments, std::vector<Tensor> results) {
  const auto call = std::make_shared<RecordedCall>(op, on_host, device, arguments, std::move(results));
  return [call] { call->run(); };
}

void require_recordable(const c10::OperatorHandle& op) {
  bool is_read = op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
  for (const c10::Argument& result : op.schema().returns())
    is_read = is_read ||
              (result.type()->kind() != c10::TypeKind::TensorType && result.type()->kind() != c10::TypeKind::ListType);
  TORCH_CHECK(!is_read, op.operator_name(), ": operation not permitted when stream is capturing");
}

}  // namespace simulated_device
