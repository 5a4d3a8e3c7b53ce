// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <ATen/core/grad_mode.h>

#include "base/error.hpp"

namespace accel::optim {

bool Optimizer::step_by(const Closure& closure) {
  {
    const at::AutoGradMode recording(true);
    closure();
  }
  return step();
}

int64_t Optimizer::expected_state_bytes(const at::Tensor& /*parameter*/) const {
  fail(Status::kUnsupported,
       "the sizes of the states of an application's optimizer are not known; expected an optimizer of the library, or "
       "none");
}

void DeviceRate::write(double rate) {
  if (written != rate) value.fill_(rate);
  written = rate;
}

void Optimizer::write_device_rates() {
  fail(Status::kUnsupported,
       "steps of an application's optimizer cannot be captured; expected an optimizer of the library");
}

std::vector<at::Tensor> Optimizer::parameters() const {
  std::vector<at::Tensor> parameters;
  for (const ParameterGroup& group : groups())
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  return parameters;
}

double& Optimizer::setting_of(ParameterGroup& group, std::string_view name) const {
  if (name == "lr") return group.lr;
  if (name == "weight_decay") return group.weight_decay;
  std::string names = "lr, weight_decay";
  size_t i = 0;
  for (const Setting& setting : settings()) {
    if (name == setting.name) return group.values[i];
    names += std::string(", ") + setting.name;
    ++i;
  }
  fail(Status::kNotFound, "the optimizer has no setting \"", name, "\"; it has ", names);
}

double Optimizer::setting(size_t index, std::string_view name) const {
  require(index < groups().size(), Status::kNotFound, "parameter group ", index, " is not there; the optimizer has ",
          groups().size());
  return setting_of(const_cast<ParameterGroup&>(groups()[index]), name);  // only read
}

void Optimizer::set_setting(size_t index, std::string_view name, double new_value) {
  ParameterGroup& changed = group(index);
  double& place = setting_of(changed, name);
  for (const Setting& setting : settings())
    require(!setting.is_mode() || name != setting.name, Status::kInvalidArgument, "the setting \"", name,
            "\" says what the parameters are; change it by accel_optimizer_train()");
  check_setting(name, settings(), new_value);
  const double old_value = place;
  place = new_value;
  try {
    check_settings(changed);
  } catch (...) {
    place = old_value;
    throw;
  }
}

bool Optimizer::has_setting(std::string_view name) const {
  if (name == "lr" || name == "weight_decay") return true;
  for (const Setting& setting : settings())
    if (name == setting.name) return true;
  return false;
}

void Optimizer::set_update_precision(size_t index, UpdatePrecision precision) {
  ParameterGroup& changed = group(index);
  if (precision == UpdatePrecision::kStochasticRounding) {
    for (size_t i = 0; i < changed.parameters.size(); ++i)
      require(changed.parameters[i].scalar_type() != at::kHalf, Status::kInvalidArgument, "parameter ", i,
              " of the group is float16; stochastic rounding is for bfloat16: take master weights");
  }
  changed.precision = precision;
}

}  // namespace accel::optim
