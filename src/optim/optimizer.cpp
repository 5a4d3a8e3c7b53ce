#include "optim/optimizer.hpp"

#include <cmath>

#include "base/error.hpp"

namespace accel::optim {

double Optimizer::lr(size_t index) const {
  require(index < groups().size(), Status::kNotFound, "parameter group ", index, " is not there; the optimizer has ",
          groups().size());
  return groups()[index].lr;
}

void Optimizer::set_lr(size_t index, double lr) {
  ParameterGroup& changed = group(index);
  require(std::isfinite(lr) && lr >= 0, Status::kInvalidArgument, "lr is ", lr,
          "; expected a finite number of at least 0");
  changed.lr = lr;
}

}  // namespace accel::optim
