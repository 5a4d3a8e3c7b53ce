#include "tensor/backward.hpp"

#include <torch/csrc/autograd/autograd.h>

#include "base/error.hpp"

namespace accel::tensor {

void check_backward(const at::Tensor& tensor, const BackwardOptions& options) {
  if (options.gradient.defined()) {
    require(options.gradient.sizes() == tensor.sizes(), Status::kShapeMismatch, "the gradient has shape ",
            options.gradient.sizes(), "; expected ", tensor.sizes(), " as the tensor");
  } else {
    require(tensor.numel() == 1, Status::kShapeMismatch, "the tensor has shape ", tensor.sizes(),
            "; expected one element: take its mean or sum, or give a gradient of this shape");
  }
  if (!options.inputs) return;
  require(!options.inputs->empty(), Status::kInvalidArgument,
          "inputs has no tensors; expected those that shall get gradients, or NULL for all leaves");
  for (const at::Tensor& input : *options.inputs)
    require(input.requires_grad() && input.is_leaf(), Status::kInvalidArgument, "inputs has a tensor of shape ",
            input.sizes(), " that ", input.is_leaf() ? "requires no gradient" : "was computed from others",
            "; expected leaves that require gradients");
}

void backward(const at::Tensor& tensor, const BackwardOptions& options, const at::Tensor& seed) {
  torch::autograd::variable_list seeds;
  if (seed.defined()) {
    seeds.push_back(seed);
  } else if (options.gradient.defined()) {
    seeds.push_back(options.gradient);
  }
  torch::autograd::backward({tensor}, seeds, options.retain_graph, options.create_graph,
                            options.inputs.value_or(std::vector<at::Tensor>()));
}

}  // namespace accel::tensor
