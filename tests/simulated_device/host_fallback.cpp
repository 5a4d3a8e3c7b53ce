// SPDX-License-Identifier: Apache-2.0
#include "host_fallback.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "argument_checks.hpp"
#include "capture.hpp"
#include "device.hpp"
#include "generator.hpp"
#include "host_kernel_call.hpp"
#include "host_tensor.hpp"
#include "recorded_call.hpp"
#include "settings.hpp"
#include "storage_operators.hpp"

namespace simulated_device {
namespace {

using at::Tensor;
using c10::IValue;

// A tensor that the operator writes, and the copy on the host that is written instead, until the stream is there.
struct Written {
  Tensor on_device;
  Tensor on_host;
};

class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op), stack_(stack), num_arguments_(op.schema().arguments().size()), device_(device_of_arguments()) {}

  void run(HostKernel on_host) {
    check_fused_optimizer(op_, *stack_);
    const c10::DeviceGuard guard(c10::Device(kDeviceType, device_));
    SimulatedDevice& device = usable_device(device_);
    Stream& stream = current_stream(device_);
    Capture* const capture = stream.capture();
    if (capture) require_recordable(op_);
    ++device.operators;
    stream.synchronize();
    usable_device(device_);  // it may have been lost meanwhile
    arguments_ = torch::jit::pop(*stack_, num_arguments_);
    for (size_t index = 0; index < num_arguments_; ++index)
      stack_->push_back(on_host_argument(index, arguments_[index]));
    call_on_host(op_, stack_, on_host, device_);
    replace_results();
    if (!results_.empty()) ++device.launches;
    if (casts()) ++device.casts;
    if (op_.hasTag(at::Tag::data_dependent_output)) ++device.host_waits;  // the host reads the result
    const std::chrono::microseconds delay(settings().operator_delay_us);
    if (capture) record(*capture, on_host, delay);
    stream.enqueue([results = std::move(results_)] { write(results); }, delay);
  }

 private:
  const IValue& argument(size_t index) const { return torch::jit::peek(*stack_, index, num_arguments_); }

  // Of the tensors, else of the argument for the device, else the current one.
  c10::DeviceIndex device_of_arguments() const {
    std::optional<c10::Device> device = common_device(op_, *stack_);
    for (size_t index = 0; index < num_arguments_ && !device; ++index)
      if (argument(index).isDevice() && argument(index).toDevice().type() == kDeviceType)
        device = argument(index).toDevice();
    return device && device->has_index() ? device->index() : current_device();
  }

  IValue on_host_argument(size_t index, const IValue& value) {
    const c10::Argument& argument = op_.schema().arguments()[index];
    if (value.isTensor()) return on_host_tensor(argument, value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(on_host_tensor(argument, tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
        list.push_back(tensor ? std::optional<Tensor>(on_host_tensor(argument, *tensor)) : std::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kDeviceType) return c10::Device(at::kCPU);
    if (value.isGenerator()) return host_generator(value.toGenerator(), device_);
    if (value.isNone() && *argument.type() == *c10::OptionalType::create(c10::GeneratorType::get()))
      return host_generator(default_generator(device_), device_);
    return value;
  }

  Tensor on_host_tensor(const c10::Argument& argument, const Tensor& tensor) {
    if (!is_on_device(tensor)) return tensor;
    if (!writes(argument)) return host_alias(tensor);
    for (const Written& written : written_)
      if (written.on_device.is_same(tensor)) return written.on_host;
    written_.push_back({tensor, host_copy(tensor, !argument.kwarg_only())});
    return written_.back().on_host;
  }

  // The copies are ordinary ones otherwise, which are counted where they are made.
  bool casts() const {
    if (op_.operator_name().name != "aten::_foreach_copy_") return false;
    const auto to = arguments_[0].toTensorVector(), from = arguments_[1].toTensorVector();
    return to[0].dtype() != from[0].dtype();
  }

  void replace_results() {
    const auto& returns = op_.schema().returns();
    std::vector<IValue> results = torch::jit::pop(*stack_, returns.size());
    for (size_t index = 0; index < returns.size(); ++index) {
      const IValue& value = results[index];
      if (returns[index].alias_info() && writes(returns[index]))
        stack_->push_back(argument_of(returns[index]));
      else if (value.isTensor())
        stack_->push_back(new_result(value.toTensor()));
      else if (value.isTensorList())
        stack_->push_back(new_results(value.toTensorVector()));
      else
        stack_->push_back(value);
    }
    for (const Written& written : written_) {
      if (written.on_device.sizes() != written.on_host.sizes()) resize_like(written.on_device, written.on_host);
      results_.push_back({host_alias(written.on_device), written.on_host});
    }
  }

  // An output argument of another size, which LibTorch resizes.
  static void resize_like(const Tensor& tensor, const Tensor& like) {
    resize_tensor(tensor, like.sizes());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  }

  const IValue& argument_of(const c10::Argument& result) const {
    const auto& arguments = op_.schema().arguments();
    for (size_t index = 0; index < num_arguments_; ++index)
      if (arguments[index].alias_info() && *arguments[index].alias_info() == *result.alias_info())
        return arguments_[index];
    TORCH_CHECK(false, "the simulated device cannot tell which argument ", op_.operator_name(), " returns");
  }

  Tensor new_result(const Tensor& on_host) {
    if (!on_host.defined()) return on_host;
    const Tensor dense = on_host.is_non_overlapping_and_dense() ? on_host : on_host.contiguous();
    Tensor result =
        empty_on_device(c10::Device(kDeviceType, device_), dense.sizes(), dense.strides(), dense.scalar_type());
    results_.push_back({host_alias(result), dense});
    return result;
  }

  std::vector<Tensor> new_results(const std::vector<Tensor>& on_host) {
    std::vector<Tensor> results;
    for (const Tensor& tensor : on_host) results.push_back(new_result(tensor));
    return results;
  }

  void record(Capture& capture, HostKernel on_host, std::chrono::microseconds delay) const {
    std::vector<Tensor> results;
    for (const Written& result : results_) results.push_back(result.on_device);
    capture.add(recorded_call(op_, on_host, device_, arguments_, std::move(results)), delay);
  }

  static void write(const std::vector<Written>& results) {
    for (const Written& result : results) copy_on_host(result.on_device, result.on_host);
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* const stack_;
  const size_t num_arguments_;
  const c10::DeviceIndex device_;
  std::vector<IValue> arguments_;
  std::vector<Written> written_;
  std::vector<Written> results_;  // both on the host: the memory of the device, and what is written there
};

void cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "Could not run '",
                              op.operator_name(), "' with arguments from the '", device_name_setting(),
                              "' backend: there is no kernel for the CPU either");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

bool is_foreach(const c10::OperatorHandle& op) { return op.operator_name().name.rfind("aten::_foreach_", 0) == 0; }

// Whether CUDA has one kernel for the lists of a _foreach operator: their tensors are dense and of one layout and
// dtype, between which _foreach_copy_ may convert. It goes from tensor to tensor otherwise.
bool is_one_kernel(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const bool converts = op.operator_name().name == "aten::_foreach_copy_";
  std::vector<Tensor> first;
  for (size_t index = 0; index < arguments.size(); ++index) {
    const IValue& value = torch::jit::peek(stack, index, arguments.size());
    if (value.isTensor() && value.toTensor().dim() > 0) return false;  // a number for each tensor, which the host reads
    if (!value.isTensorList()) continue;
    const std::vector<Tensor> list = value.toTensorVector();
    if (first.empty()) first = list;
    if (list.empty() || list.size() != first.size()) return false;
    for (size_t place = 0; place < list.size(); ++place) {
      const Tensor& tensor = list[place];
      const bool has_dtype = tensor.scalar_type() == (converts ? list : first)[0].scalar_type();
      if (!is_on_device(tensor) || !has_dtype || !tensor.is_non_overlapping_and_dense() ||
          tensor.sizes() != first[place].sizes() || tensor.strides() != first[place].strides())
        return false;
    }
  }
  return true;
}

void foreach_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (is_one_kernel(op, *stack)) return compute_on_host(op, stack, &cpu_kernel);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);  // composed of operators for each tensor
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() && !writes(result)) return true;
  return false;
}

}  // namespace

void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, HostKernel on_host) {
  HostCall(op, stack).run(on_host);
}

bool writes(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

void host_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(!returns_view(op.schema()), "the simulated device has no kernel for the view ",
                              op.operator_name());
  compute_on_host(op, stack, &cpu_kernel);
}

void register_cpu_kernels(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (name.getNamespace() != "aten" || !op || !op->hasSchema() || returns_view(op->schema())) continue;
    if (is_foreach(*op)) {
      library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&foreach_operator>());
      continue;
    }
    const auto has = [&op](c10::DispatchKey key) { return op->hasKernelForDispatchKey(key); };
    if (has(c10::DispatchKey::CPU) && !has(c10::DispatchKey::PrivateUse1) &&
        (has(c10::DispatchKey::CompositeExplicitAutograd) ||
         has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)))
      library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&host_fallback>());
  }
}

}  // namespace simulated_device
