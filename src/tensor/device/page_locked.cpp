// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/page_locked.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <atomic>

#include "base/log.hpp"

namespace accel::tensor {
namespace {

void warn_once(const c10::Error& error) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log(LogLevel::kWarning,
      "the system gives no page-locked memory for a tensor, so that its copy waits: ", error.what_without_backtrace(),
      "; see `ulimit -l`, or make the tensors smaller");
}

// Makes it with the options; where there is no page-locked memory for it, without it.
template <typename Make>
at::Tensor make_on_host(at::TensorOptions options, const Make& make) {
  options = options.device(at::kCPU);
  if (options.pinned_memory()) try {
      return make(options);
    } catch (const c10::Error& error) {
      warn_once(error);
    }
  return make(options.pinned_memory(false));
}

}  // namespace

at::Tensor empty_on_host(c10::IntArrayRef sizes, const at::TensorOptions& options) {
  return make_on_host(options, [&](const at::TensorOptions& chosen) { return at::empty(sizes, chosen); });
}

at::Tensor empty_like_on_host(const at::Tensor& tensor, const at::TensorOptions& options) {
  return make_on_host(options, [&](const at::TensorOptions& chosen) { return at::empty_like(tensor, chosen); });
}

at::Tensor page_locked(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || tensor.numel() == 0 || tensor.is_pinned()) return tensor;
  at::Tensor copy;
  try {
    copy = at::empty_like(tensor, tensor.options().pinned_memory(true));
  } catch (const c10::Error& error) {
    warn_once(error);
    return tensor;
  }
  return copy.copy_(tensor);
}

}  // namespace accel::tensor
