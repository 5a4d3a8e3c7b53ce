// SPDX-License-Identifier: Apache-2.0
// LoRA: an update of low rank to the product of a projection whose weight is frozen (Hu et al., "LoRA: Low-Rank
// Adaptation of Large Language Models", 2021, https://arxiv.org/abs/2106.09685), and DoRA, which also trains the
// magnitude of each output (Liu et al., 2024, https://arxiv.org/abs/2402.09353).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "nn/layers/projection.hpp"

namespace accel::nn {

struct LoraConfig;

enum class LoraStart : uint8_t {
  kZero,      // the first factor as linear layers have it, the second one 0: the model begins as it was
  kGaussian,  // the first factor normal with deviation 1 / rank, the second one 0
  kRandom,    // both as linear layers have them
};

struct LoraShape {
  int64_t rank = 8;
  double scale = 1;  // alpha / rank, or alpha / sqrt(rank) (Kalajdzievski, "rsLoRA", 2023)
  double dropout = 0;
  bool is_dora = false;
  LoraStart start = LoraStart::kZero;
};

// One adapter of one projection, whose tree has its parameters: "lora_A.NAME.weight" [rank, inputs],
// "lora_B.NAME.weight" [outputs, rank], and with DoRA "lora_magnitude_vector.NAME.weight" [outputs].
class Lora final : public ProductUpdate {
 public:
  // Adds the parameters to `projection`, in the dtype of its weight or float32 if that is less precise, and on its
  // device; the update acts from then on.
  static std::shared_ptr<Lora> attach(Projection& projection, const std::string& name, const LoraShape& shape,
                                      std::shared_ptr<const LoraConfig> config);
  // Removes them and the update.
  static void detach(Projection& projection, const std::string& name);

  at::Tensor apply(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                   Product product) const override;
  bool needs_weight() const override { return magnitude_ != nullptr && acts(); }

  const std::string& name() const { return name_; }
  const LoraShape& shape() const { return shape_; }
  // The adapter was added with this, in all layers.
  const std::shared_ptr<const LoraConfig>& config() const { return config_; }
  bool is_active() const { return is_active_; }
  void set_active(bool is_active);
  bool is_merged() const { return is_merged_; }
  // Adds the update to the weight, in float32 and rounded once, or takes it away again. The weight is whole and in
  // memory. A quantized one is quantized again, and gets its former codes back. `layer` stands in errors.
  void merge(Projection& projection, const std::string& layer);
  void unmerge(Projection& projection, const std::string& layer);

 private:
  Lora(std::string name, const LoraShape& shape, std::shared_ptr<const LoraConfig> config)
      : name_(std::move(name)), shape_(shape), config_(std::move(config)) {}

  bool acts() const;  // in calls of this thread
  // Returns the float32 numbers that are added to a weight [outputs, inputs].
  at::Tensor weight_change() const;
  // The magnitude of each output of the weight with its change, without a gradient.
  at::Tensor norms(const at::Tensor& weight, Product product) const;

  std::string name_;
  LoraShape shape_;
  std::shared_ptr<const LoraConfig> config_;
  ModulePtr dropout_;
  std::shared_ptr<Projection> first_, second_;
  ModulePtr magnitude_;  // null without DoRA
  bool is_active_ = true, is_merged_ = false;
  at::Tensor merged_norms_;  // of DoRA
  NamedTensors former_;      // the members of a quantized layer before the merge
};

}  // namespace accel::nn
