// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/part_cost.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/Device.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "nn/deferred_products.hpp"
#include "nn/initial_values.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/forward_state.hpp"
#include "parallel/pipeline/cut/product_count.hpp"
#include "tensor/autograd/backward.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

constexpr int kTimedRuns = 3;  // far enough apart that what disturbs one does not disturb all

// Calls the visitor with each module of a part.
template <typename Visit>
void visit_modules(nn::Module& model, const nn::ModulePart& part, const Visit& visit) {
  for (const std::string& path : part.modules)
    for (const auto& [name, module] : nn::named_modules(*model.find(path))) visit(*module);
}

// Gives the tensors of a part memory, where they have none, while it lives.
class BorrowedMemory {
 public:
  BorrowedMemory(nn::Module& model, const nn::ModulePart& part) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> empty;
    visit_modules(model, part, [&empty](const nn::Module& module) {
      for (const auto& member : nn::members_of(module))
        if (member.tensor.is_meta()) empty.push_back(member.tensor);
    });
    for (const at::Tensor& tensor : empty) {
      if (!tensor.is_meta()) continue;  // it is tied to another
      at::Tensor former = at::empty_like(tensor);
      nn::remember_filling_of(former, tensor);
      at::Tensor memory = at::empty_like(tensor, tensor.options().device(at::kCPU));
      if (memory.is_floating_point())
        memory.fill_(kSmall);
      else
        memory.zero_();
      tensor::set_data(tensor, memory);
      borrowed_.emplace_back(tensor, std::move(former));
    }
  }
  ~BorrowedMemory() {
    for (const auto& [tensor, former] : borrowed_) {
      tensor::set_data(tensor, former);
      nn::remember_filling_of(tensor, former);
    }
  }
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;

 private:
  static constexpr double kSmall = 1e-3;  // neither zero nor denormal, which other speeds go with
  std::vector<std::pair<at::Tensor, at::Tensor>> borrowed_;
};

std::vector<at::Tensor> without_gradients(nn::Module& model, const nn::ModulePart& part) {
  std::vector<at::Tensor> parameters;
  visit_modules(model, part, [&parameters](const nn::Module& module) {
    for (const auto& [name, parameter] : module.direct_parameters())
      if (!parameter.grad().defined()) parameters.push_back(parameter);
  });
  return parameters;
}

c10::IValue detached(const c10::IValue& value) {
  return tree::map_tensors(value, [](const at::Tensor& tensor) { return tensor.detach(); });
}

// A value as the part before gives it: its floating tensors have gradients.
c10::IValue as_input(const c10::IValue& value) {
  return tree::map_tensors(value, [](const at::Tensor& tensor) {
    const at::Tensor leaf = tensor.detach();
    return leaf.is_floating_point() ? leaf.requires_grad_() : leaf;
  });
}

c10::Device device_of(nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters())
    if (!parameter.is_meta()) return parameter.device();
  return c10::kCPU;
}

// Runs the parts one after the other. `run` gets the part and its input, and returns its output.
void run_chain(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample,
               const std::function<c10::IValue(const nn::ModulePart& part, const c10::IValue& input)>& run) {
  require(tree::is_sequence(sample), Status::kTypeMismatch, "the sample inputs are a ", tree::kind_name(sample),
          "; expected a tuple or list of the model's inputs");
  c10::IValue value = tree::send_to_device(sample, device_of(model), /*non_blocking=*/false, {});
  const nn::ForwardState state(model, tree::sequence_items(value).vec(), /*with_generators=*/true);
  state.replay(model, [&] {
    for (const nn::ModulePart& part : chain) {
      const BorrowedMemory memory(model, part);
      value = detached(run(part, value));
    }
  });
}

// Leaves the output in `output`.
PartSeconds time_part(const nn::ModulePart& part, const c10::IValue& input, c10::Device device, c10::IValue& output) {
  const c10::IValue leaf = as_input(input);
  const auto products = nn::DeferredProducts::create();
  const nn::DeferredProducts::Scope scope(products);
  tensor::synchronize(device);
  auto begin = std::chrono::steady_clock::now();
  const auto seconds_since = [&begin, device] {
    tensor::synchronize(device);
    const auto former = std::exchange(begin, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(begin - former).count();
  };
  PartSeconds seconds;
  output = part.call(leaf);
  std::vector<at::Tensor> outputs, gradients;
  tree::for_each_tensor(output, [&](const at::Tensor& tensor) {
    if (!tensor.requires_grad()) return;
    outputs.push_back(tensor);
    gradients.push_back(at::ones_like(tensor));
  });
  seconds.forward = seconds_since();
  if (!outputs.empty()) tensor::backward(outputs, gradients);
  seconds.input_backward = seconds_since();
  products->complete();
  seconds.weight_backward = seconds_since();
  return seconds;
}

}  // namespace

std::vector<PartSize> part_sizes(nn::Module& model, const nn::ModuleChain& chain) {
  std::vector<PartSize> sizes;
  for (const nn::ModulePart& part : chain) {
    PartSize& size = sizes.emplace_back();
    std::unordered_set<const at::TensorImpl*> seen;
    visit_modules(model, part, [&](const nn::Module& module) {
      for (const auto& [name, parameter] : module.direct_parameters()) {
        if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
        size.parameters += parameter.numel();
        size.bytes += static_cast<int64_t>(parameter.nbytes());
      }
    });
  }
  return sizes;
}

std::vector<double> weight_operations(nn::Module& model, const nn::ModuleChain& chain) {
  std::vector<double> operations;
  for (const nn::ModulePart& part : chain) {
    double& sum = operations.emplace_back(0);
    visit_modules(model, part, [&sum](const nn::Module& module) {
      if (module.kind() == "Embedding") return;
      for (const auto& [name, parameter] : module.direct_parameters())
        if (parameter.dim() >= 2) sum += 2.0 * static_cast<double>(parameter.numel());
    });
  }
  return operations;
}

std::vector<double> counted_operations(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample) {
  std::vector<double> operations;
  run_chain(model, chain, sample, [&operations](const nn::ModulePart& part, const c10::IValue& input) {
    const at::NoGradGuard no_grad;
    const ProductCount count;
    c10::IValue output = part.call(input);
    operations.push_back(count.operations());
    return output;
  });
  return operations;
}

std::vector<PartSeconds> measured_halves(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample) {
  std::vector<PartSeconds> seconds(chain.size(), PartSeconds{std::numeric_limits<double>::infinity()});
  const c10::Device device = device_of(model);
  for (int run = -1; run < kTimedRuns; run++) {  // the first one warms up
    size_t number = 0;
    run_chain(model, chain, sample, [&](const nn::ModulePart& part, const c10::IValue& input) {
      const auto dropped = c10::make_scope_exit([parameters = without_gradients(model, part)] {
        for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      });
      c10::IValue output;
      const PartSeconds taken = time_part(part, input, device, output);
      if (run >= 0 && taken.all() < seconds[number].all()) seconds[number] = taken;
      number++;
      return output;
    });
  }
  return seconds;
}

std::vector<double> measured_seconds(nn::Module& model, const nn::ModuleChain& chain, const c10::IValue& sample) {
  std::vector<double> seconds;
  for (const PartSeconds& part : measured_halves(model, chain, sample)) seconds.push_back(part.all());
  return seconds;
}

}  // namespace accel::parallel
