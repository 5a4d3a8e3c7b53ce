// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/reducer_sink.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <vector>

#include "parallel/ddp/reducer.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

struct ReducerReference : torch::CustomClassHolder {
  explicit ReducerReference(std::weak_ptr<Reducer> reducer) : reducer(std::move(reducer)) {}
  std::weak_ptr<Reducer> reducer;
};

struct Sink : torch::autograd::Function<Sink> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList outputs,
                                                const std::weak_ptr<Reducer>& reducer, bool delay_all_reduce) {
    context->set_materialize_grads(false);
    if (delay_all_reduce)
      context->saved_data["reducer"] = c10::IValue::make_capsule(c10::make_intrusive<ReducerReference>(reducer));
    torch::autograd::variable_list results;
    for (const at::Tensor& output : outputs) results.push_back(output.view_as(output));
    return results;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto found = context->saved_data.find("reducer");
    if (found != context->saved_data.end()) {
      const auto reducer = static_cast<const ReducerReference*>(found->second.toCapsule().get())->reducer;
      torch::autograd::Engine::get_default_engine().queue_callback([reducer] {
        if (const auto alive = reducer.lock()) alive->reduce_static_graph();
      });
    }
    gradients.emplace_back();
    gradients.emplace_back();
    return gradients;
  }
};

}  // namespace

c10::IValue pass_through_sink(const c10::IValue& output, const std::shared_ptr<Reducer>& reducer,
                              bool delay_all_reduce) {
  std::vector<at::Tensor> tensors;
  tree::for_each_tensor(output, [&](const at::Tensor& tensor) {
    if (tensor.grad_fn()) tensors.push_back(tensor);
  });
  if (tensors.empty()) return output;
  const auto passed = Sink::apply(at::TensorList(tensors), std::weak_ptr<Reducer>(reducer), delay_all_reduce);
  size_t next = 0;
  return tree::map_tensors(output,
                           [&](const at::Tensor& tensor) { return tensor.grad_fn() ? passed[next++] : tensor; });
}

}  // namespace accel::parallel
