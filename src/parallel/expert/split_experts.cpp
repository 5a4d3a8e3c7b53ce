// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert/split_experts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/module_walks.hpp"
#include "nn/operators.hpp"
#include "nn/split/expert_ranks.hpp"
#include "parallel/expert/token_exchange.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/sync_module_states.hpp"
#include "tensor/placement.hpp"
#include "tensor/set_data.hpp"

namespace accel::parallel {
namespace {

struct ExpertLayer {
  std::string path;
  std::shared_ptr<nn::MixtureOfExperts> module;
};

std::vector<ExpertLayer> layers_of(nn::Module& model) {
  std::vector<ExpertLayer> layers;
  for (const auto& [path, module] : nn::named_modules(model))
    if (auto layer =
            std::dynamic_pointer_cast<nn::MixtureOfExperts>(path.empty() ? model.shared_from_this() : model.find(path)))
      layers.push_back({path, std::move(layer)});
  return layers;
}

// This rank's part of a parameter [experts, ...], with the values of the first rank.
at::Tensor scattered_part(const at::Tensor& whole, const tensor::Box& box, comm::Communicator& ranks,
                          const std::string& path) {
  const bool any_empty = ranks.any_rank(whole.is_meta()), any_full = ranks.any_rank(!whole.is_meta());
  require(any_empty != any_full, Status::kCollectiveMismatch, "'", path,
          "' has memory on some of the ranks that share experts, and none on others; expected the same on all");
  const at::Tensor part = at::empty(box.sizes, whole.options().requires_grad(false));
  if (whole.is_meta()) {
    nn::remember_filling_of(part, whole);
    return part;
  }
  // Where only an accelerator has collectives, the tensor goes there alone.
  const at::Device device = whole.is_cpu() ? ranks.device() : whole.device();
  const at::Tensor sent = whole.detach().to(device).contiguous();
  const at::Tensor received = at::empty(box.sizes, sent.options());
  ranks.run(comm::Collective::scatter(sent, /*from=*/0, received));
  return part.copy_(received);
}

// Parameters of one module whose first dimension are the experts.
struct SharedParameters {
  std::string path;
  nn::Module* module;
  std::vector<size_t> indices;

  int64_t num_experts() const { return module->parameter(indices.front()).size(0); }
};

// Mixtures of experts are shared out without being named.
std::vector<SharedParameters> shared_parameters(nn::Module& model, const NamesExperts& names_experts) {
  std::vector<SharedParameters> shared;
  for (const auto& [path, found] : nn::named_modules(model)) {
    nn::Module* const module = path.empty() ? &model : model.find(path).get();
    const bool is_mixture = dynamic_cast<const nn::GroupedExperts*>(found) != nullptr;
    const bool is_named = names_experts(path) || is_mixture;
    SharedParameters of_module{path, module, {}};
    const auto& parameters = module->direct_parameters();
    for (size_t i = 0; i < parameters.size(); i++)
      if (names_experts(nn::join_path(path, parameters[i].first)) || is_named) of_module.indices.push_back(i);
    if (!of_module.indices.empty()) shared.push_back(std::move(of_module));
  }
  return shared;
}

void check_experts(const SharedParameters& shared, int64_t ranks, const std::string& axis) {
  for (const size_t index : shared.indices) {
    const auto& [name, parameter] = shared.module->direct_parameters()[index];
    require(axis == kSplitExpertAxis || shared.module->placement(index) == nullptr, Status::kInvalidArgument, "'",
            nn::join_path(shared.path, name),
            "' is split by a plan, and its experts would be shared out among ranks with other parts; expected "
            "tensor_parallel_experts 1, or no such rule");
    require(parameter.dim() >= 2 && parameter.size(0) == shared.num_experts(), Status::kInvalidArgument, "'",
            nn::join_path(shared.path, name), "' has the shape ", parameter.sizes(),
            "; expected the experts as the first of several dimensions, as many as in the other parameters of '",
            shared.path, "'");
  }
  require(shared.num_experts() % ranks == 0, Status::kInvalidArgument, "'", shared.path, "' has ", shared.num_experts(),
          " experts, and expert_parallel_size is ", ranks, "; expected a number of experts that it divides");
}

// A parameter that is split along another axis is cut once more.
void split_parameters(const SharedParameters& shared, const RankGroup& ranks, const std::string& axis) {
  const int64_t own = shared.num_experts() / ranks->size();
  for (const size_t index : shared.indices) {
    const auto& [name, parameter] = shared.module->direct_parameters()[index];
    const std::vector<int64_t> shape = parameter.sizes().vec();
    tensor::Box box{tensor::whole_offset(shape.size()), shape};
    box.offset[0] = ranks->rank() * own;
    box.sizes[0] = own;
    tensor::set_data(parameter, scattered_part(parameter, box, *ranks, nn::join_path(shared.path, name)));
    const tensor::PlacementPtr former = shared.module->placement(index);
    shared.module->set_placement(index, former == nullptr
                                            ? tensor::box_placement(shape, box, axis)
                                            : std::make_shared<const tensor::Placement>(former->cut(box, axis)));
  }
}

// The module owns what computes with its parameters.
void mark_parameters(const SharedParameters& shared, const RankGroup& ranks) {
  const int64_t features = shared.module->parameter(shared.indices.front()).size(1);
  const auto exchange = std::make_shared<const TokenExchange>(ranks, ExpertLayerSizes{0, features});
  for (const size_t index : shared.indices) nn::mark_expert_ranks(shared.module->parameter(index), exchange);
  shared.module->hooks().add_post_hook(
      [exchange](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
        return std::nullopt;
      });
}

}  // namespace

void split_experts(nn::Module& model, const RankGroup& ranks, const std::string& axis,
                   const NamesExperts& names_experts) {
  const std::vector<SharedParameters> all = shared_parameters(model, names_experts);
  for (const SharedParameters& shared : all) check_experts(shared, ranks->size(), axis);
  for (const SharedParameters& shared : all) check_same_model(*shared.module, *ranks);  // other layers may be split
  nn::register_operators();
  const at::NoGradGuard no_grad;
  for (const SharedParameters& shared : all) {
    split_parameters(shared, ranks, axis);
    if (dynamic_cast<nn::GroupedExperts*>(shared.module) == nullptr) mark_parameters(shared, ranks);
  }
  for (const ExpertLayer& layer : layers_of(model)) {
    const int64_t intermediate = layer.module->experts()->parameter(nn::GroupedExperts::kDown).size(2);
    layer.module->set_ranks(
        std::make_shared<TokenExchange>(ranks, ExpertLayerSizes{layer.module->experts_per_token(), intermediate}));
  }
}

void set_capacity_factor(nn::Module& model, double factor) {
  for (const ExpertLayer& layer : layers_of(model)) layer.module->set_capacity_factor(factor);
}

}  // namespace accel::parallel
