// Adam (Kingma, Ba, 2015) and AdamW (Loshchilov, Hutter, 2019): they differ in
// where the weight decay enters.
#pragma once

#include "optim/parameter_optimizer.hpp"

namespace accel::optim {

enum class WeightDecay { kInGradient, kDecoupled };  // Adam, AdamW

// Defaults of torch.optim.
struct AdamSettings {
  double lr = 1e-3;
  double weight_decay = 0;  // torch.optim.AdamW has 0.01
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool amsgrad = false;
  bool maximize = false;
};

class Adam final : public ParameterOptimizer {
 public:
  Adam(WeightDecay kind, const AdamSettings& settings);

 protected:
  void group_added() override;
  void update(size_t group, c10::ArrayRef<GradientEntry> entries) override;
  void write_settings(size_t group, Map& settings) const override;
  std::optional<Map> write_state(size_t index) const override;
  std::unique_ptr<Loaded> read(const std::vector<Map>& settings,
                               const std::vector<std::optional<Map>>& states) const override;
  void adopt(std::unique_ptr<Loaded> loaded) noexcept override;

 private:
  struct State {
    at::Tensor step;  // a float32 scalar, as in torch.optim
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor max_exp_avg_sq;  // only with amsgrad
  };
  struct LoadedAdam;

  State& state_of(const GradientEntry& entry, bool amsgrad);

  WeightDecay kind_;
  AdamSettings defaults_;
  std::vector<AdamSettings> settings_;  // of each group, but for lr and weight_decay, which are the
                                        // group's own
  std::vector<State> states_;           // of each parameter, made at its first update
};

}  // namespace accel::optim
