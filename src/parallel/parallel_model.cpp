#include "parallel/parallel_model.hpp"

#include <utility>

namespace accel::parallel {

std::vector<at::Tensor> ParallelModel::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module_->parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradients;
}

namespace {

// Not a module of the tree: also created temporarily, for modules that are not prepared.
class SingleProcessModel final : public ParallelModel {
 public:
  explicit SingleProcessModel(nn::ModulePtr module) : ParallelModel("SingleProcessModel", std::move(module)) {}

  bool exchanges_gradients() const override { return false; }
  bool set_gradient_sync(bool sync) override { return std::exchange(sync_, sync); }
  void expect_backward() override {}
  CommunicatorPtr set_gradient_group(CommunicatorPtr /*group*/) override { return nullptr; }
  void register_comm_hook(BucketCallback /*callback*/) override {}
  c10::IValue reduction_state() const override { return {}; }
  void load_reduction_state(const c10::IValue& /*saved*/) override {}
  void shadow(const ForwardNotice& /*others*/, int /*source*/) override {}

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override { return module()->call(inputs); }

 private:
  bool sync_ = true;
};

}  // namespace

ParallelModelPtr single_process_model(nn::ModulePtr module) {
  return std::make_shared<SingleProcessModel>(std::move(module));
}

}  // namespace accel::parallel
