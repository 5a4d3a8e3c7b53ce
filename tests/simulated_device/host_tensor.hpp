// SPDX-License-Identifier: Apache-2.0
// Tensors of the host that stand for tensors of a device inside of an operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace simulated_device {

bool is_on_device(const at::Tensor& tensor);
// The same memory. Does not own it: a tensor that is freed while its stream is still to use it, is poisoned.
at::Tensor host_alias(const at::Tensor& tensor);
// A copy with the same strides, or only room for one.
at::Tensor host_copy(const at::Tensor& tensor, bool with_elements);
// Where a tensor's elements are written later: fills it with what shows that it has no value.
void poison(const at::Tensor& host);
// Copies with conversion, outside of autograd and autocast. Does nothing else than memcpy where that is the same.
void copy_on_host(const at::Tensor& to, const at::Tensor& from);

}  // namespace simulated_device
