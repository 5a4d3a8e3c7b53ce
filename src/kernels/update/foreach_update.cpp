#include "kernels/update/foreach_update.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>

#include <algorithm>

#define ACCEL_KERNEL_NAMESPACE foreach_lists

namespace accel::kernels::foreach_lists {

using Scalars = std::vector<at::Scalar>;

bool are_all(const Scalars& scalars, double value) {
  return std::all_of(scalars.begin(), scalars.end(), [value](const at::Scalar& s) { return s.toDouble() == value; });
}

// The V of the update kernels. A value is never changed in place, so lists may share tensors.
struct List {
  std::vector<at::Tensor> tensors;
};

List operator+(const List& a, const List& b) { return {at::_foreach_add(a.tensors, b.tensors)}; }
List operator-(const List& a, const List& b) { return {at::_foreach_sub(a.tensors, b.tensors)}; }
List operator*(const List& a, const List& b) { return {at::_foreach_mul(a.tensors, b.tensors)}; }
List operator/(const List& a, const List& b) { return {at::_foreach_div(a.tensors, b.tensors)}; }
List operator*(const List& a, const Scalars& b) { return are_all(b, 1) ? a : List{at::_foreach_mul(a.tensors, b)}; }
List operator+(const List& a, const Scalars& b) { return are_all(b, 0) ? a : List{at::_foreach_add(a.tensors, b)}; }
List plus_product(const List& a, const List& b, const Scalars& c) { return are_all(c, 0) ? a : a + b * c; }
List square_root(const List& a) { return {at::_foreach_sqrt(a.tensors)}; }
List magnitude(const List& a) { return {at::_foreach_abs(a.tensors)}; }
List larger(const List& a, const List& b) { return {at::_foreach_maximum(a.tensors, b.tensors)}; }
List sign(const List& a) { return {at::_foreach_sign(a.tensors)}; }

}  // namespace accel::kernels::foreach_lists

#include "kernels/update/update_kernels.hpp"

namespace accel::kernels {
namespace {

template <typename F>
void run(const ForeachUpdate& lists) {
  foreach_lists::List states[kMaxStates];
  for (int k = 0; k < F::kStates; ++k) states[k].tensors = lists.states[k];
  foreach_lists::List parameters{lists.parameters};
  F::apply(lists.scalars, parameters, foreach_lists::List{lists.gradients}, states);
  at::_foreach_copy_(lists.parameters, parameters.tensors);
  for (int k = 0; k < foreach_lists::kChangedStates<F>; ++k) at::_foreach_copy_(lists.states[k], states[k].tensors);
}

}  // namespace

void update(UpdateKernel kernel, const ForeachUpdate& lists) {
  switch (kernel) {
    case UpdateKernel::kSgd:
      return run<foreach_lists::Sgd>(lists);
    case UpdateKernel::kSgdMomentum:
      return run<foreach_lists::SgdMomentum>(lists);
    case UpdateKernel::kAdam:
      return run<foreach_lists::Adam>(lists);
    case UpdateKernel::kAdamAmsgrad:
      return run<foreach_lists::AdamAmsgrad>(lists);
    case UpdateKernel::kNadam:
      return run<foreach_lists::Nadam>(lists);
    case UpdateKernel::kRadam:
      return run<foreach_lists::Radam>(lists);
    case UpdateKernel::kAdamax:
      return run<foreach_lists::Adamax>(lists);
    case UpdateKernel::kAdagrad:
      return run<foreach_lists::Adagrad>(lists);
    case UpdateKernel::kRmsProp:
      return run<foreach_lists::RmsProp<false, false>>(lists);
    case UpdateKernel::kRmsPropMomentum:
      return run<foreach_lists::RmsProp<false, true>>(lists);
    case UpdateKernel::kRmsPropCentered:
      return run<foreach_lists::RmsProp<true, false>>(lists);
    case UpdateKernel::kRmsPropCenteredMomentum:
      return run<foreach_lists::RmsProp<true, true>>(lists);
    case UpdateKernel::kLion:
      return run<foreach_lists::Lion>(lists);
    case UpdateKernel::kLambDirection:
      return run<foreach_lists::LambDirection>(lists);
    case UpdateKernel::kLambStep:
      return run<foreach_lists::LambStep>(lists);
    case UpdateKernel::kScheduleFreeSgd:
      return run<foreach_lists::ScheduleFreeSgd>(lists);
    case UpdateKernel::kScheduleFreeAdam:
      return run<foreach_lists::ScheduleFreeAdam>(lists);
  }
}

}  // namespace accel::kernels
