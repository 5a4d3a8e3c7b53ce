#include "optim/clip.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "optim/settings.hpp"

namespace accel::optim {
namespace {

constexpr double kNormEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_

std::vector<at::Tensor> dense_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    require(gradient.layout() == at::kStrided, Status::kUnsupported, "a sparse gradient of shape ", gradient.sizes(),
            " cannot be clipped; expected dense ones");
    gradients.push_back(gradient);
  }
  return gradients;
}

// Lists of one device each: foreach kernels take no mixture.
std::vector<std::vector<at::Tensor>> by_device(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const auto& tensor : tensors) {
    auto list = lists.begin();
    while (list != lists.end() && list->front().device() != tensor.device()) ++list;
    if (list == lists.end()) list = lists.emplace(lists.end());
    list->push_back(tensor);
  }
  return lists;
}

}  // namespace

at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) {
  require(max_norm >= 0, Status::kInvalidArgument, "max_norm is ", max_norm, "; expected at least 0");
  require(norm_type > 0, Status::kInvalidArgument, "norm_type is ", norm_type,
          "; expected a number above 0, or infinity");
  const at::NoGradGuard no_grad;
  const auto lists = by_device(dense_gradients(parameters));
  if (lists.empty()) return at::zeros({}, at::kFloat);

  std::vector<at::Tensor> norms;
  const c10::Device device = lists[0][0].device();
  for (const auto& list : lists)
    for (const auto& norm : at::_foreach_norm(list, norm_type)) norms.push_back(norm.to(device));
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  // Multiplied also when the factor is 1: asking whether it is would wait for
  // the device. On the CPU there is nothing to wait for.
  const at::Tensor factor = (max_norm / (total + kNormEpsilon)).clamp_max(1.0);
  if (device.is_cpu() && factor.item<double>() == 1.0) return total;
  for (const auto& list : lists) at::_foreach_mul_(list, factor.to(list[0].device()));
  return total;
}

void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value) {
  require(clip_value >= 0, Status::kInvalidArgument, "clip_value is ", clip_value, "; expected at least 0");
  const at::NoGradGuard no_grad;
  for (const auto& list : by_device(dense_gradients(parameters))) {
    at::_foreach_clamp_min_(list, -clip_value);
    at::_foreach_clamp_max_(list, clip_value);
  }
}

}  // namespace accel::optim
