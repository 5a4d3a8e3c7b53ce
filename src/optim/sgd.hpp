// Stochastic gradient descent with momentum, as torch.optim.SGD.
#pragma once

#include "optim/parameter_optimizer.hpp"

namespace accel::optim {

struct SgdSettings {
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  bool maximize = false;
};

class Sgd final : public ParameterOptimizer {
 public:
  explicit Sgd(const SgdSettings& settings);

 protected:
  void group_added() override;
  void update(size_t group, c10::ArrayRef<GradientEntry> entries) override;
  void write_settings(size_t group, Map& settings) const override;
  std::optional<Map> write_state(size_t index) const override;
  std::unique_ptr<Loaded> read(const std::vector<Map>& settings,
                               const std::vector<std::optional<Map>>& states) const override;
  void adopt(std::unique_ptr<Loaded> loaded) noexcept override;

 private:
  struct LoadedSgd;

  void update_alike(size_t group, const std::vector<GradientEntry>& entries, bool is_first_step);

  SgdSettings defaults_;
  std::vector<SgdSettings> settings_;         // of each group, but for lr and
                                              // weight_decay, which are the group's own
  std::vector<at::Tensor> momentum_buffers_;  // of each parameter, made at its
                                              // first update with momentum
};

}  // namespace accel::optim
