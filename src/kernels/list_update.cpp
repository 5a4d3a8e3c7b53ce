#include "kernels/list_update.hpp"

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

#define ACCEL_KERNEL_NAMESPACE on_lists

namespace accel::kernels::on_lists {

using Scalars = std::vector<at::Scalar>;

bool are_all(const Scalars& scalars, double value) {
  return std::all_of(scalars.begin(), scalars.end(), [value](const at::Scalar& s) { return s.toDouble() == value; });
}

// The V of the formulas. A value is never changed in place, so lists may share tensors.
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

}  // namespace accel::kernels::on_lists

#include "kernels/update_formulas.hpp"

namespace accel::kernels {
namespace {

template <typename F>
void run(const ListUpdate& lists) {
  on_lists::List states[kMostStates];
  for (int k = 0; k < F::kStates; ++k) states[k].tensors = lists.states[k];
  on_lists::List parameters{lists.parameters};
  F::apply(lists.numbers, parameters, on_lists::List{lists.gradients}, states);
  at::_foreach_copy_(lists.parameters, parameters.tensors);
  for (int k = 0; k < on_lists::kChangedStates<F>; ++k) at::_foreach_copy_(lists.states[k], states[k].tensors);
}

}  // namespace

void update(Formula formula, const ListUpdate& lists) {
  switch (formula) {
    case Formula::kSgd:
      return run<on_lists::Sgd>(lists);
    case Formula::kSgdMomentum:
      return run<on_lists::SgdMomentum>(lists);
    case Formula::kAdam:
      return run<on_lists::Adam>(lists);
    case Formula::kAdamAmsgrad:
      return run<on_lists::AdamAmsgrad>(lists);
    case Formula::kNadam:
      return run<on_lists::Nadam>(lists);
    case Formula::kRadam:
      return run<on_lists::Radam>(lists);
    case Formula::kAdamax:
      return run<on_lists::Adamax>(lists);
    case Formula::kAdagrad:
      return run<on_lists::Adagrad>(lists);
    case Formula::kRmsProp:
      return run<on_lists::RmsProp<false, false>>(lists);
    case Formula::kRmsPropMomentum:
      return run<on_lists::RmsProp<false, true>>(lists);
    case Formula::kRmsPropCentered:
      return run<on_lists::RmsProp<true, false>>(lists);
    case Formula::kRmsPropCenteredMomentum:
      return run<on_lists::RmsProp<true, true>>(lists);
    case Formula::kLion:
      return run<on_lists::Lion>(lists);
    case Formula::kLambDirection:
      return run<on_lists::LambDirection>(lists);
    case Formula::kLambStep:
      return run<on_lists::LambStep>(lists);
    case Formula::kScheduleFreeSgd:
      return run<on_lists::ScheduleFreeSgd>(lists);
    case Formula::kScheduleFreeAdam:
      return run<on_lists::ScheduleFreeAdam>(lists);
  }
}

}  // namespace accel::kernels
