// libaccel for programs that use LibTorch themselves: tensors cross without a copy, and a torch::nn module becomes a module
// that accel_prepare_model() trains.
// SPDX-License-Identifier: Apache-2.0
//
//     Net net(784, 10);  // TORCH_MODULE(Net)
//     const accel::ModuleHandle model = accel::module_from_torch(net);
//     CHECK(accel_prepare_model(state, model.get(), nullptr, &prepared));
//
// Header-only, C++17. It needs LibTorch's headers, and the same version of LibTorch as libaccel; docs/libtorch.md says what is
// checked. Failures are exceptions: std::runtime_error with the message of libaccel.
#pragma once

#include <accel.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/version.h>

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

struct ReleaseHandle {
  void operator()(accel_tensor_t* tensor) const { accel_tensor_release(tensor); }
  void operator()(accel_module_t* module) const { accel_module_release(module); }
};
using TensorHandle = std::unique_ptr<accel_tensor_t, ReleaseHandle>;
using ModuleHandle = std::unique_ptr<accel_module_t, ReleaseHandle>;

// Computes a torch::nn module, for forwards that are more than one tensor in and one out.
using TorchForward = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

namespace torch_bridge {

inline void check(accel_status_t status) {
  if (status < 0) throw std::runtime_error(accel_last_error());
}

inline at::Tensor adopt(void* tensor_impl) {
  using Reference = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return at::Tensor(Reference::reclaim(static_cast<c10::TensorImpl*>(tensor_impl)));
}

}  // namespace torch_bridge

// The tensor itself, not a copy: elements, gradient and autograd history are shared.
inline TensorHandle tensor_from_torch(at::Tensor tensor) {
  accel_tensor_t* handle = nullptr;
  void* const reference = tensor.unsafeReleaseTensorImpl();
  const accel_status_t status = accel_tensor_from_torch(reference, TORCH_VERSION, &handle);
  if (status == ACCEL_ERROR_UNSUPPORTED) torch_bridge::adopt(reference);  // it was not taken
  torch_bridge::check(status);
  return TensorHandle(handle);
}

inline at::Tensor tensor_to_torch(const accel_tensor_t* tensor) {
  void* reference = nullptr;
  torch_bridge::check(accel_tensor_to_torch(tensor, TORCH_VERSION, &reference));
  return torch_bridge::adopt(reference);
}

namespace torch_bridge {

inline std::vector<at::Tensor> tensors_of(const accel_value_t* inputs, size_t n_inputs) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < n_inputs; i++) {
    if (inputs[i].kind != ACCEL_VALUE_TENSOR)
      throw std::invalid_argument("input " + std::to_string(i) + " is not a tensor; a torch::nn module takes tensors");
    tensors.push_back(tensor_to_torch(inputs[i].as.tensor));
  }
  return tensors;
}

// The exception in flight as the status and message of a callback.
inline accel_status_t report_exception() noexcept {
  try {
    throw;
  } catch (const c10::Error& error) {
    accel_error_set(ACCEL_ERROR_TORCH, error.what_without_backtrace());
    return ACCEL_ERROR_TORCH;
  } catch (const std::exception& error) {
    accel_error_set(ACCEL_ERROR_USER, error.what());
  } catch (...) {
    accel_error_set(ACCEL_ERROR_USER, "the forward of a torch::nn module threw what is not a std::exception");
  }
  return ACCEL_ERROR_USER;
}

struct WrappedModule {
  std::shared_ptr<::torch::nn::Module> module;
  TorchForward forward;

  static accel_status_t call(accel_module_t* module, const accel_value_t* inputs, size_t n_inputs, accel_value_t* out,
                             void* user_data) noexcept {
    try {
      const WrappedModule& wrapped = *static_cast<const WrappedModule*>(user_data);
      int32_t training = 1;
      check(accel_module_is_training(module, &training));
      if (wrapped.module->is_training() != (training == 1)) wrapped.module->train(training == 1);
      TensorHandle output = tensor_from_torch(wrapped.forward(tensors_of(inputs, n_inputs)));
      *out = accel_arg_tensor(output.release());
      return ACCEL_OK;
    } catch (...) {
      return report_exception();
    }
  }

  static void destroy(void* user_data) { std::unique_ptr<WrappedModule>(static_cast<WrappedModule*>(user_data)); }
};

// A node of the tree: the very tensors, under their names.
inline ModuleHandle mirror(const ::torch::nn::Module& module) {
  accel_module_t* created = nullptr;
  check(accel_module_create(module.name().c_str(), &created));
  ModuleHandle mirrored(created);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const TensorHandle tensor = tensor_from_torch(parameter.value());
    const int32_t requires_grad = parameter.value().requires_grad() ? 1 : 0;
    check(accel_module_add_parameter(created, parameter.key().c_str(), tensor.get(), requires_grad));
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    if (!buffer.value().defined()) continue;
    const TensorHandle tensor = tensor_from_torch(buffer.value());
    check(accel_module_add_buffer(created, buffer.key().c_str(), tensor.get(), /*persistent=*/1));
  }
  for (const auto& child : module.named_children())
    check(accel_module_add_child(created, child.key().c_str(), mirror(*child.value()).get()));
  return mirrored;
}

}  // namespace torch_bridge

// A module with the parameters, buffers and children of `module`, themselves and not copies. It keeps `module` alive. Each
// call runs it in training or evaluation, as accel_module_train() says. Only the whole can be called, not its children.
inline ModuleHandle module_from_torch(std::shared_ptr<::torch::nn::Module> module, TorchForward forward) {
  if (module == nullptr || forward == nullptr)
    throw std::invalid_argument("module_from_torch got no module or no forward; expected both");
  ModuleHandle mirrored = torch_bridge::mirror(*module);
  using torch_bridge::WrappedModule;
  auto wrapped = std::make_unique<WrappedModule>(WrappedModule{std::move(module), std::move(forward)});
  torch_bridge::check(
      accel_module_set_forward(mirrored.get(), WrappedModule::call, wrapped.release(), WrappedModule::destroy));
  return mirrored;
}

// For a module whose forward takes one tensor and gives one.
template <typename Implementation>
ModuleHandle module_from_torch(std::shared_ptr<Implementation> module) {
  static_assert(std::is_base_of_v<::torch::nn::Module, Implementation>, "expected a module of torch::nn");
  Implementation* const called = module.get();
  return module_from_torch(std::move(module), [called](const std::vector<at::Tensor>& inputs) -> at::Tensor {
    if (inputs.size() != 1)
      throw std::invalid_argument("a torch::nn module was called with " + std::to_string(inputs.size()) +
                                  " inputs; expected 1, or a forward given to module_from_torch()");
    return called->forward(inputs[0]);
  });
}

template <typename Implementation>
ModuleHandle module_from_torch(const ::torch::nn::ModuleHolder<Implementation>& module) {
  return module_from_torch(module.ptr());
}

}  // namespace accel
