// SPDX-License-Identifier: Apache-2.0
#include "nn/package/package_module.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "json/json.hpp"
#include "nn/package/input_checks.hpp"
#include "nn/package/loaded_package.hpp"
#include "nn/package/package_constants.hpp"
#include "nn/package/package_file.hpp"
#include "nn/package/package_target.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr const char* kDescription = "accel";  // the name of the text of accel compile

class PackageModule final : public Module {
 public:
  PackageModule(std::shared_ptr<LoadedPackage> package, InputChecks checks, const Json& description,
                const std::string& source)
      : Module("Package"),
        package_(std::move(package)),
        checks_(std::move(checks)),
        constants_(package_, *this, description, source) {
    names_ = checks_.names();
    const CallTree& positional = package_->inputs().children()[0];
    const CallTree& named = package_->inputs().children()[1];
    for (size_t i = names_.size(); i < positional.children().size(); i++) names_.push_back(text("input", i));
    for (size_t i = names_.size() - positional.children().size(); i < named.keys().size(); i++)
      names_.push_back(named.keys()[i]);
    train(false);
  }

  std::vector<std::string> input_names() const override { return names_; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const std::vector<at::Tensor> tensors = checks_.tensors_of(leaves_of(inputs));
    // The code is compiled for its dtypes: operators that it calls stay in them.
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    constants_.refresh();
    const std::vector<at::Tensor> outputs = run(tensors);
    size_t next = 0;
    return package_->outputs().unflatten(outputs, next);
  }

  void training_changed() override {
    if (!is_training()) return;
    train(false);
    fail(
        Status::kUnsupported,
        "a package has no backward and cannot be trained; train the model itself, which has fused kernels and captured "
        "steps, and load its state dict into the package");
  }

 private:
  std::vector<c10::IValue> leaves_of(const Inputs& inputs) const {
    require(inputs.size() == names_.size(), Status::kInvalidArgument, "a package got ", inputs.size(),
            " inputs; expected ", names_.size());
    std::vector<c10::IValue> leaves;
    size_t place = 0;
    for (const CallTree& group : package_->inputs().children())
      for (const CallTree& input : group.children()) {
        input.flatten(inputs[place], names_[place], leaves);
        place++;
      }
    return leaves;
  }

  // Code that nobody described checks its inputs itself, if a variable says so when it first runs.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors) {
    std::optional<EnvironmentDefaults> checking;
    if (!checks_.are_known() && !has_run_.load(std::memory_order_acquire))
      checking.emplace(std::vector<EnvironmentDefaults::Variable>{{"AOTI_RUNTIME_CHECK_INPUTS", "1"}});
    std::vector<at::Tensor> outputs = package_->run(tensors);
    has_run_.store(true, std::memory_order_release);
    return outputs;
  }

  std::shared_ptr<LoadedPackage> package_;
  InputChecks checks_;
  PackageConstants constants_;
  std::vector<std::string> names_;
  std::atomic<bool> has_run_{false};
};

}  // namespace

ModulePtr load_package(const std::string& path, const PackageSettings& settings) {
  PackageFile file(path, settings.model_name.value);
  const std::string described = file.text_of(kDescription);
  const Json description = described.empty() ? Json() : parse_json(described, path);
  const c10::Device device = check_target(file, description, settings.device.value);
  InputChecks checks(description, device, path);
  const auto package = std::make_shared<LoadedPackage>(file, device, settings.concurrent_calls.value);
  return std::make_shared<PackageModule>(package, std::move(checks), description, path);
}

}  // namespace accel::nn
