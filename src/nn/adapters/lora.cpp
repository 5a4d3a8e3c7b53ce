// SPDX-License-Identifier: Apache-2.0
#include "nn/adapters/lora.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "nn/adapters/adapter_scope.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "nn/weight_store.hpp"

namespace accel::nn {
namespace {

constexpr const char* kDropouts = "lora_dropout";
constexpr const char* kFirsts = "lora_A";
constexpr const char* kSeconds = "lora_B";
constexpr const char* kMagnitudes = "lora_magnitude_vector";

// Parts of adapters by their names, or the one parameter of a part.
class AdapterPart final : public Module {
 public:
  explicit AdapterPart(const char* kind) : Module(kind) {}
  bool has_forward() const override { return false; }

 protected:
  bool has_free_parts() const override { return true; }
};

ModulePtr find_child(const Module& module, const std::string& name) {
  const auto& children = module.children();
  const auto found =
      std::find_if(children.begin(), children.end(), [&](const auto& child) { return child.first == name; });
  return found == children.end() ? nullptr : found->second;
}

ModulePtr part_of(Module& projection, const char* part) {
  if (ModulePtr present = find_child(projection, part)) return present;
  auto made = std::make_shared<AdapterPart>("Adapters");
  projection.add_child(part, made);
  return made;
}

std::shared_ptr<Linear> make_factor(int64_t outputs, int64_t inputs, const at::TensorOptions& options) {
  return std::make_shared<Linear>(at::empty({outputs, inputs}, options), at::Tensor());
}

// Sums of products in less than float32 lose too much. Factors of an offloaded weight are where it is used.
at::TensorOptions factor_options(const Projection& projection) {
  const at::Tensor& weight = projection.parameter(Projection::kWeight);
  const bool is_exact = weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kDouble;
  const bool is_offloaded = weight.is_meta() && projection.weight_store() != nullptr;
  const c10::Device device = is_offloaded ? projection.weight_store()->compute_device() : weight.device();
  return at::TensorOptions(device).dtype(is_exact ? weight.scalar_type() : at::kFloat);
}

void fill_factors(const at::Tensor& first, const at::Tensor& second, const LoraShape& shape) {
  if (shape.start == LoraStart::kGaussian)
    fill_normal(first, 0, 1.0 / static_cast<double>(shape.rank));
  else
    fill_kaiming_uniform(first);
  if (shape.start == LoraStart::kRandom)
    fill_kaiming_uniform(second);
  else
    fill_constant(second, 0);
}

// [outputs, inputs]
at::Tensor by_outputs(const at::Tensor& weight, Product product) { return product.is_transposed ? weight.t() : weight; }

// Returns the former tensors.
NamedTensors exchange_members(Module& module, const NamedTensors& members) {
  NamedTensors former;
  for (const auto& [name, tensor] : members) {
    former.emplace_back(name, find_tensor(module, name));
    module.replace_tensor(name, tensor);
  }
  return former;
}

// The weight to which an update is added. A quantized one is decoded to [outputs, inputs].
struct BaseWeight {
  explicit BaseWeight(Projection& owner)
      : projection(owner),
        product{owner.encoded() == nullptr && owner.output_dim() == 1},
        values(owner.encoded() == nullptr ? owner.parameter(Projection::kWeight)
                                          : owner.encoded()->values(at::kFloat)) {}

  at::Tensor by_outputs() const { return nn::by_outputs(values, product); }

  // Returns the members of the layer that were exchanged.
  NamedTensors set(const at::Tensor& changed, const std::string& layer) const {
    if (projection.encoded() != nullptr)
      return exchange_members(projection, projection.encoded()->encode(changed, layer));
    by_outputs().copy_(changed);
    return {};
  }

  Projection& projection;
  const Product product;
  const at::Tensor values;
};

}  // namespace

std::shared_ptr<Lora> Lora::attach(Projection& projection, const std::string& name, const LoraShape& shape,
                                   std::shared_ptr<const LoraConfig> config) {
  const at::TensorOptions options = factor_options(projection);
  auto first = make_factor(shape.rank, projection.in_features(), options);
  auto second = make_factor(projection.out_features(), shape.rank, options);
  fill_factors(first->parameter(0), second->parameter(0), shape);
  const std::shared_ptr<Lora> lora(new Lora(name, shape, std::move(config)));
  lora->dropout_ = std::make_shared<Dropout>(shape.dropout);
  lora->dropout_->train(projection.is_training());
  lora->first_ = first;
  lora->second_ = second;
  if (shape.is_dora) {
    lora->magnitude_ = std::make_shared<AdapterPart>("Magnitude");
    const at::Tensor weight = projection.encoded() != nullptr
                                  ? projection.whole_weight()
                                  : stored_values(projection.weight_store(), projection.parameter(Projection::kWeight));
    lora->magnitude_->add_parameter("weight", lora->norms(weight.to(options.device()), {projection.output_dim() == 1}));
  }
  part_of(projection, kDropouts)->add_child(name, lora->dropout_);
  part_of(projection, kFirsts)->add_child(name, lora->first_);
  part_of(projection, kSeconds)->add_child(name, lora->second_);
  if (shape.is_dora) part_of(projection, kMagnitudes)->add_child(name, lora->magnitude_);
  projection.add_update(lora);
  return lora;
}

void Lora::detach(Projection& projection, const std::string& name) {
  for (const char* part : {kDropouts, kFirsts, kSeconds, kMagnitudes})
    if (const ModulePtr parts = find_child(projection, part); parts != nullptr && find_child(*parts, name) != nullptr)
      parts->remove(name);
  projection.remove_updates([&name](const ProductUpdate& update) {
    const auto* const lora = dynamic_cast<const Lora*>(&update);
    return lora != nullptr && lora->name() == name;
  });
}

bool Lora::acts() const {
  if (is_merged_) return false;
  const std::shared_ptr<const AdapterNames> named = AdapterScope::current();
  return named == nullptr ? is_active_ : std::find(named->begin(), named->end(), name_) != named->end();
}

at::Tensor Lora::weight_change() const {
  const at::Tensor first = first_->parameter(0).to(at::kFloat), second = second_->parameter(0).to(at::kFloat);
  return at::mm(second, first) * shape_.scale;
}

at::Tensor Lora::norms(const at::Tensor& weight, Product product) const {
  const at::NoGradGuard no_grad;
  const at::Tensor changed = by_outputs(weight, product).to(at::kFloat) + weight_change();
  return at::linalg_vector_norm(changed, 2, at::IntArrayRef({1})).to(first_->parameter(0).scalar_type());
}

at::Tensor Lora::apply(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                       const at::Tensor& bias, Product product) const {
  if (!acts()) return output;
  const at::Tensor kept = dropout_->call(input);
  const at::Tensor rows = kept.to(first_->parameter(0).scalar_type());
  const at::Tensor change = second_->call(first_->call(rows));
  if (magnitude_ == nullptr) return output.add(change.to(output.scalar_type()), shape_.scale);
  const at::Tensor ratio = magnitude_->parameter(0) / norms(weight, product);
  const bool drops = shape_.dropout > 0 && dropout_->is_training();
  const at::Tensor base = drops ? product(kept, weight, at::Tensor()) : bias.defined() ? output - bias : output;
  return output + ((ratio - 1) * base + ratio * change * shape_.scale).to(output.scalar_type());
}

void Lora::set_active(bool is_active) {
  is_active_ = is_active;
  for (const ModulePtr& part : {ModulePtr(first_), ModulePtr(second_), magnitude_})
    if (part != nullptr) part->parameter(0).set_requires_grad(is_active);
}

void Lora::merge(Projection& projection, const std::string& layer) {
  if (is_merged_) return;
  const at::NoGradGuard no_grad;
  const BaseWeight base(projection);
  at::Tensor merged = base.by_outputs().to(at::kFloat) + weight_change();
  if (magnitude_ != nullptr) {
    merged_norms_ = norms(base.values, base.product);
    merged *= (magnitude_->parameter(0) / merged_norms_).to(at::kFloat).unsqueeze(1);
  }
  former_ = base.set(merged, layer);
  is_merged_ = true;
}

void Lora::unmerge(Projection& projection, const std::string& layer) {
  if (!is_merged_) return;
  const at::NoGradGuard no_grad;
  if (!former_.empty()) {
    exchange_members(projection, std::exchange(former_, {}));
  } else {
    const BaseWeight base(projection);
    at::Tensor former = base.by_outputs().to(at::kFloat);
    if (magnitude_ != nullptr) former = former * (merged_norms_ / magnitude_->parameter(0)).to(at::kFloat).unsqueeze(1);
    base.set(former - weight_change(), layer);
  }
  is_merged_ = false;
}

}  // namespace accel::nn
