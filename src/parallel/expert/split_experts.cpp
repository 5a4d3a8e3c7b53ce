#include "parallel/expert/split_experts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/collective.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/module_walks.hpp"
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

void split_layer(const ExpertLayer& layer, const RankGroup& ranks) {
  nn::GroupedExperts& experts = *layer.module->experts();
  const int64_t all = layer.module->num_experts(), own = all / ranks->size();
  for (const size_t index : {nn::GroupedExperts::kGateUp, nn::GroupedExperts::kDown}) {
    const at::Tensor& parameter = experts.parameter(index);
    const std::vector<int64_t> shape = parameter.sizes().vec();
    tensor::Box box{tensor::whole_offset(shape.size()), shape};
    box.offset[0] = ranks->rank() * own;
    box.sizes[0] = own;
    tensor::set_data(parameter, scattered_part(parameter, box, *ranks, nn::join_path(layer.path, "experts")));
    experts.set_placement(index, tensor::box_placement(shape, box, kExpertAxis));
  }
}

}  // namespace

void split_experts(nn::Module& model, const RankGroup& ranks) {
  if (nn::placements(model).have_axis(kExpertAxis)) return;
  const std::vector<ExpertLayer> layers = layers_of(model);
  if (layers.empty())
    return log(LogLevel::kWarning, text("expert_parallel_size is ", ranks->size(),
                                        ", and the model has no mixture of experts: no layer is shared out"));
  for (const ExpertLayer& layer : layers)
    require(layer.module->num_experts() % ranks->size() == 0, Status::kInvalidArgument, "'", layer.path, "' has ",
            layer.module->num_experts(), " experts, and expert_parallel_size is ", ranks->size(),
            "; expected a number of experts that it divides");
  for (const ExpertLayer& layer : layers) check_same_model(*layer.module, *ranks);  // other layers may be split
  const at::NoGradGuard no_grad;
  for (const ExpertLayer& layer : layers) {
    const int64_t intermediate = layer.module->experts()->parameter(nn::GroupedExperts::kDown).size(2);
    split_layer(layer, ranks);
    layer.module->set_ranks(
        std::make_shared<TokenExchange>(ranks, ExpertLayerSizes{layer.module->experts_per_token(), intermediate}));
  }
}

void set_capacity_factor(nn::Module& model, double factor) {
  for (const ExpertLayer& layer : layers_of(model)) layer.module->set_capacity_factor(factor);
}

}  // namespace accel::parallel
