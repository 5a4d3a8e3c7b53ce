// SPDX-License-Identifier: Apache-2.0
// A toy kind of parallelism, which shows what one has to say: it splits two linear layers over the axis "tensor" of the
// mesh, the first by its output features and the second by its inputs (Shoeybi et al., "Megatron-LM", 2019). The first
// layer has two packed halves, as query and key have, so that a rank stores two boxes of each weight.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tanh.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/mesh.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::parallel::column_strategy {

constexpr int64_t kInputs = 5, kHalf = 3, kHidden = 2 * kHalf, kOutputs = 3;
constexpr const char* kAxis = "tensor";

// The sum over the ranks of what the second layer computes from their features.
using Sum = std::function<at::Tensor(const at::Tensor& partial)>;

inline std::shared_ptr<nn::CallbackModule> make_model(const Sum& sum = nullptr) {
  auto model = std::make_shared<nn::CallbackModule>("Net");
  model->add_parameter("up_weight", at::linspace(-0.9, 0.8, kHidden * kInputs).sin().view({kHidden, kInputs}), true);
  model->add_parameter("up_bias", at::linspace(0.3, -0.2, kHidden), true);
  model->add_parameter("down_weight", at::linspace(0.7, -0.6, kOutputs * kHidden).view({kOutputs, kHidden}), true);
  model->add_parameter("down_bias", at::linspace(0.1, 0.4, kOutputs), true);
  model->set_forward([sum](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor hidden = at::tanh(at::linear(inputs[0].toTensor(), self.parameter(0), self.parameter(1)));
    const at::Tensor partial = at::linear(hidden, self.parameter(2));
    return (sum == nullptr ? partial : sum(partial)) + self.parameter(3);
  });
  return model;
}

// The features of a rank: its part of each half, which differs by at most one between ranks.
inline std::vector<tensor::PlacedBox> features_of(int64_t rank, int64_t ranks) {
  const int64_t begin = kHalf * rank / ranks, count = kHalf * (rank + 1) / ranks - begin;
  return {{{{begin}, {count}}, {0}}, {{{kHalf + begin}, {count}}, {count}}};
}

inline std::shared_ptr<nn::CallbackModule> split_model(comm::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const auto ranks = mesh.group(kAxis);
  // The sum's gradient is that of each partial product.
  const auto model = make_model([ranks](const at::Tensor& partial) {
    const at::Tensor sum = partial.detach().clone();
    ranks->all_reduce(sum, comm::ReduceOp::kSum);
    return partial + (sum - partial.detach());
  });
  const auto features = features_of(mesh.coordinate(kAxis), mesh.size(kAxis));
  nn::Placements placements;
  const auto split = [&](size_t index, size_t dim) {
    const at::Tensor& parameter = model->parameter(index);
    tensor::Placement placement{parameter.sizes().vec(), {}, kAxis};
    for (const tensor::PlacedBox& own : features) {
      tensor::PlacedBox box = tensor::whole_placement(placement.shape).boxes.front();
      box.whole.offset[dim] = own.whole.offset[0];
      box.whole.sizes[dim] = own.whole.sizes[0];
      box.local[dim] = own.local[0];
      placement.boxes.push_back(box);
    }
    parameter.set_data(tensor::read_part(parameter.detach().clone(), placement, "a parameter"));
    placements.set(parameter, std::make_shared<const tensor::Placement>(placement));
  };
  split(0, 0);
  split(1, 0);
  split(2, 1);
  nn::set_placements(*model, placements);
  return model;
}

}  // namespace accel::parallel::column_strategy
