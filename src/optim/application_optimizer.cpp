// SPDX-License-Identifier: Apache-2.0
#include "optim/application_optimizer.hpp"

#include <ATen/core/grad_mode.h>

#include "base/error.hpp"

namespace accel::optim {
namespace {

class ApplicationOptimizer final : public Optimizer {
 public:
  explicit ApplicationOptimizer(OptimizerFunctions functions) : functions_(std::move(functions)) {}

  bool step() override {
    const at::NoGradGuard no_grad;
    skipped_ = true;  // also if the application fails
    skipped_ = !functions_.step();
    return !skipped_;
  }
  bool step_was_skipped() const override { return skipped_; }
  void zero_grad(bool set_to_none) override { functions_.zero_grad(set_to_none); }
  void train(bool) override {}

  const std::vector<ParameterGroup>& groups() const override { return groups_; }
  ParameterGroup& group(size_t index) override {
    require(index < groups_.size(), Status::kNotFound, "parameter group ", index, " is not there; the optimizer has ",
            groups_.size());
    return groups_[index];
  }
  void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                 std::optional<double> weight_decay) override {
    ParameterGroup group;
    group.parameters = std::move(parameters);
    group.lr = lr.value_or(0);
    group.weight_decay = weight_decay.value_or(0);
    groups_.push_back(std::move(group));
  }
  c10::ArrayRef<Setting> settings() const override { return {}; }
  void check_settings(const ParameterGroup&) const override {}

  c10::IValue state_dict() const override { return functions_.save(); }
  void load_state_dict(const c10::IValue& state) override { functions_.load(state); }
  int64_t state_bytes() const override { return 0; }

 private:
  OptimizerFunctions functions_;
  std::vector<ParameterGroup> groups_;
  bool skipped_ = false;
};

}  // namespace

std::shared_ptr<Optimizer> application_optimizer(OptimizerFunctions functions) {
  return std::make_shared<ApplicationOptimizer>(std::move(functions));
}

}  // namespace accel::optim
