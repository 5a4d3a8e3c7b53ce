// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/layerwise_casting.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/regular_expression.hpp"
#include "tensor/dtype.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

constexpr std::array<std::string_view, 9> kCastKinds = {"Linear",          "Conv1d",          "Conv1D",
                                                        "Conv2d",          "Conv3d",          "ConvTranspose1d",
                                                        "ConvTranspose2d", "ConvTranspose3d", "SelfAttention"};

std::vector<RegularExpression> read_patterns(const std::vector<std::string>& patterns) {
  std::vector<RegularExpression> expressions;
  for (const std::string& pattern : patterns)
    expressions.emplace_back(pattern, text("skip_modules_pattern has '", pattern, "'"),
                             "parts of the names of modules");
  return expressions;
}

// The parameters of one layer. Forwards on several threads share the values for the computation.
class CastParameters {
 public:
  CastParameters(std::vector<at::Tensor> parameters, at::ScalarType dtype)
      : parameters_(std::move(parameters)), dtype_(dtype) {}

  void begin() {
    const std::lock_guard lock(mutex_);
    if (uses_++ > 0) return;
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters_) {
      stored_.push_back(parameter.detach());
      tensor::set_data(parameter, stored_.back().to(dtype_));
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (uses_ == 0 || --uses_ > 0) return;
    for (size_t i = 0; i < stored_.size(); i++) tensor::set_data(parameters_[i], stored_[i]);
    stored_.clear();
  }

 private:
  std::vector<at::Tensor> parameters_;
  at::ScalarType dtype_;
  std::mutex mutex_;
  int uses_ = 0;
  std::vector<at::Tensor> stored_;
};

// Finds the layers that are cast, each once. A module that is skipped takes all below it along, as far as nothing else
// leads there.
class LayerSearch {
 public:
  LayerSearch(nn::Module& model, const LayerwiseCasting& casting)
      : model_(model), classes_(casting.skipped_classes), patterns_(read_patterns(casting.skipped_patterns)) {
    visit(model, "");
  }

  const std::vector<nn::ModulePtr>& layers() const { return layers_; }

 private:
  void visit(const nn::Module& module, const std::string& path) {
    if (contains(classes_, module.kind()) ||
        std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& one) { return one.is_found_in(path); }))
      return;
    if (contains(kCastKinds, module.kind()) && found_.insert(&module).second) add(module, path);
    for (const auto& [name, child] : module.children()) visit(*child, tree::path_below(path, name));
  }

  void add(const nn::Module& layer, const std::string& path) {
    require(layer.weight_store() == nullptr, Status::kInvalidState, "the weights of '", path,
            "' are offloaded; attach casting before the model is dispatched");
    layer.check_hookable();
    layers_.push_back(model_.find(path));
  }

  template <typename Names>
  static bool contains(const Names& names, const std::string& kind) {
    return std::find(names.begin(), names.end(), kind) != names.end();
  }

  nn::Module& model_;
  const std::vector<std::string>& classes_;
  const std::vector<RegularExpression> patterns_;
  std::unordered_set<const nn::Module*> found_;
  std::vector<nn::ModulePtr> layers_;
};

void add_casting(nn::Module& layer, const LayerwiseCasting& casting) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters;
  for (const nn::Module::Member& member : nn::members_of(layer)) {
    if (member.is_buffer || !member.tensor.is_floating_point()) continue;
    tensor::set_data(member.tensor, member.tensor.detach().to(casting.storage_dtype));
    parameters.push_back(member.tensor);
  }
  const auto cast = std::make_shared<CastParameters>(std::move(parameters), casting.compute_dtype);
  layer.hooks().add_pre_hook(
      [cast](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
        cast->begin();
        return std::nullopt;
      },
      nn::HookOrder::kPrecision);
  layer.hooks().add_post_hook(
      [cast](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
        cast->end();
        return std::nullopt;
      },
      nn::HookOrder::kPrecision, /*after_errors=*/true);
}

}  // namespace

void attach_layerwise_casting(nn::Module& model, const LayerwiseCasting& casting) {
  for (const auto& [name, dtype] :
       {std::pair("storage_dtype", casting.storage_dtype), std::pair("compute_dtype", casting.compute_dtype)})
    require(at::isFloatingType(dtype), Status::kInvalidArgument, name, " is ", tensor::dtype_name(dtype),
            "; expected a floating dtype");
  const std::vector<nn::ModulePtr> layers = LayerSearch(model, casting).layers();
  for (const nn::ModulePtr& layer : layers) add_casting(*layer, casting);
}

}  // namespace accel::bigmodel
