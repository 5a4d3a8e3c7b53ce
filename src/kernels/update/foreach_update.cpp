// SPDX-License-Identifier: Apache-2.0
#include "kernels/update/foreach_update.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/threshold.h>

#include <algorithm>
#include <utility>

#include "kernels/update/tensor_lists.hpp"

#define ACCEL_KERNEL_NAMESPACE foreach_lists

namespace accel::kernels::foreach_lists {

using Tensors = std::vector<at::Tensor>;

// A number of each parameter, or one of all that the device reads.
struct Scalars {
  std::vector<at::Scalar> values;
  at::Tensor on_device;

  bool are_all(double value) const {
    return !on_device.defined() &&
           std::all_of(values.begin(), values.end(), [value](const at::Scalar& s) { return s.toDouble() == value; });
  }
  // Calls an operator of lists.
  template <typename F>
  auto with(const F& call) const {
    return on_device.defined() ? call(on_device) : call(at::ArrayRef<at::Scalar>(values));
  }
};

// The V of the update kernels. Operations on a temporary list work in its memory, so a kernel needs few lists at once.
class List {
 public:
  List() = default;
  List(const List& other) : tensors_(other.tensors_) {}
  List(List&&) = default;
  ~List() = default;
  // The parameters or a state: what is assigned is copied there.
  static List in_memory(Tensors tensors) { return List(std::move(tensors), Memory::kFixed); }
  static List shared(Tensors tensors) { return List(std::move(tensors), Memory::kShared); }
  static List made(Tensors tensors) { return List(std::move(tensors), Memory::kTemporary); }

  List& operator=(List other) {
    if (memory_ == Memory::kFixed) {
      at::_foreach_copy_(tensors_, other.tensors_);
    } else {
      tensors_ = std::move(other.tensors_);
      memory_ = other.memory_;
    }
    return *this;
  }
  const Tensors& tensors() const { return tensors_; }
  bool is_temporary() const { return memory_ == Memory::kTemporary; }

 private:
  enum class Memory : uint8_t { kShared, kTemporary, kFixed };
  List(Tensors tensors, Memory memory) : tensors_(std::move(tensors)), memory_(memory) {}

  Tensors tensors_;
  Memory memory_ = Memory::kShared;
};

template <typename InPlace, typename New>
List result(List& a, const InPlace& in_place, const New& make) {
  if (!a.is_temporary()) return List::made(make(a.tensors()));
  in_place(a.tensors());
  return std::move(a);
}

// The first operand is by value: what is not a temporary is shared by a copy, which is none either.
List operator+(List a, const List& b) {
  return result(
      a, [&](const Tensors& t) { at::_foreach_add_(t, b.tensors()); },
      [&](const Tensors& t) { return at::_foreach_add(t, b.tensors()); });
}
List operator-(List a, const List& b) {
  return result(
      a, [&](const Tensors& t) { at::_foreach_sub_(t, b.tensors()); },
      [&](const Tensors& t) { return at::_foreach_sub(t, b.tensors()); });
}
List operator*(List a, const List& b) {
  return result(
      a, [&](const Tensors& t) { at::_foreach_mul_(t, b.tensors()); },
      [&](const Tensors& t) { return at::_foreach_mul(t, b.tensors()); });
}
List operator/(List a, const List& b) {
  return result(
      a, [&](const Tensors& t) { at::_foreach_div_(t, b.tensors()); },
      [&](const Tensors& t) { return at::_foreach_div(t, b.tensors()); });
}
List operator*(List a, const Scalars& b) {
  if (b.are_all(1)) return a;
  return result(
      a, [&](const Tensors& t) { b.with([&t](const auto& factor) { at::_foreach_mul_(t, factor); }); },
      [&](const Tensors& t) { return b.with([&t](const auto& factor) { return at::_foreach_mul(t, factor); }); });
}
List operator+(List a, const Scalars& b) {
  if (b.are_all(0)) return a;
  return result(
      a, [&](const Tensors& t) { b.with([&t](const auto& term) { at::_foreach_add_(t, term); }); },
      [&](const Tensors& t) { return b.with([&t](const auto& term) { return at::_foreach_add(t, term); }); });
}
List plus_product(List a, const List& b, const Scalars& c) {
  if (c.are_all(0)) return a;
  return std::move(a) + b * c;
}
List square_root(List a) {
  return result(
      a, [](const Tensors& t) { at::_foreach_sqrt_(t); }, [](const Tensors& t) { return at::_foreach_sqrt(t); });
}
List magnitude(List a) {
  return result(
      a, [](const Tensors& t) { at::_foreach_abs_(t); }, [](const Tensors& t) { return at::_foreach_abs(t); });
}
List sign(List a) {
  return result(
      a, [](const Tensors& t) { at::_foreach_sign_(t); }, [](const Tensors& t) { return at::_foreach_sign(t); });
}
List larger(List a, const List& b) {
  return result(
      a, [&](const Tensors& t) { at::_foreach_maximum_(t, b.tensors()); },
      [&](const Tensors& t) { return at::_foreach_maximum(t, b.tensors()); });
}
// These change parameters and states.
void operator+=(List& a, const List& b) { at::_foreach_add_(a.tensors(), b.tensors()); }
void operator-=(List& a, const List& b) { at::_foreach_sub_(a.tensors(), b.tensors()); }
void operator*=(List& a, const Scalars& b) {
  if (!b.are_all(1)) b.with([&a](const auto& factor) { at::_foreach_mul_(a.tensors(), factor); });
}

}  // namespace accel::kernels::foreach_lists

#include "kernels/update/update_kernels.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kMostBytes = 64 << 20;  // of the lists that are there for the update alone
constexpr int kTemporaryLists = 5;        // of an update kernel, at most
constexpr int kRoundingLists = 4;         // of stochastic rounding

// Appends the elements [begin, begin + count) of one parameter's tensors, in the order of memory.
void append(ForeachUpdate& part, const ForeachUpdate& lists, size_t index, int64_t begin, int64_t count) {
  const auto take = [&](const std::vector<at::Tensor>& from, std::vector<at::Tensor>& to) {
    if (from.empty()) return;
    const at::Tensor& tensor = from[index];
    to.push_back(tensor.numel() == count ? tensor : flat(tensor).narrow(0, begin, count));
  };
  take(lists.parameters, part.parameters);
  take(lists.gradients, part.gradients);
  for (int k = 0; k < kMaxStates; ++k) take(lists.states[k], part.states[k]);
  if (!lists.steps.empty()) part.steps.push_back(lists.steps[index]);
  for (int i = 0; i < kNumScalars; ++i) {
    if (!lists.scalars[i].empty()) part.scalars[i].push_back(lists.scalars[i][index]);
    part.device_scalars[i] = lists.device_scalars[i];
  }
}

at::ScalarType computed_dtype(const ForeachUpdate& lists) {
  return lists.stochastic_rounding ? at::kFloat : lists.parameters[0].scalar_type();
}

void update_in_one_dtype(const ForeachUpdate& lists, const std::function<void(const ForeachUpdate&)>& update) {
  const auto dtype = computed_dtype(lists);
  const bool casts_gradients = lists.gradients[0].scalar_type() != dtype;
  if (!casts_gradients && !lists.stochastic_rounding) return update(lists);
  ForeachUpdate in_dtype = lists;
  if (casts_gradients) in_dtype.gradients = cast(lists.gradients, dtype);
  if (lists.stochastic_rounding) in_dtype.parameters = cast(lists.parameters, dtype);
  update(in_dtype);
  if (lists.stochastic_rounding) round_stochastically(in_dtype.parameters, lists.parameters);
}

template <typename F>
void run(const ForeachUpdate& lists) {
  using foreach_lists::List;
  update_in_parts(lists, kTemporaryLists, [](const ForeachUpdate& part) {
    // Not an array of lists that is assigned: what is fixed would be copied.
    List states[] = {List::in_memory(part.states[0]), List::in_memory(part.states[1]), List::in_memory(part.states[2])};
    List parameters = List::in_memory(part.parameters);
    foreach_lists::Scalars scalars[kNumScalars];
    for (int i = 0; i < kNumScalars; ++i) scalars[i] = {part.scalars[i], part.device_scalars[i]};
    F::apply(scalars, parameters, List::shared(part.gradients), states);
  });
}

}  // namespace

void update_in_parts(const ForeachUpdate& lists, int num_temporary,
                     const std::function<void(const ForeachUpdate& part)>& update) {
  const auto dtype = computed_dtype(lists);
  const int num_casts =
      (lists.gradients[0].scalar_type() != dtype ? 1 : 0) + (lists.stochastic_rounding ? 1 + kRoundingLists : 0);
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype)) * (num_temporary + num_casts);  // of an element
  const int64_t most = bytes == 0 ? INT64_MAX : kMostBytes / bytes;
  int64_t total = 0;
  for (const at::Tensor& parameter : lists.parameters) total += parameter.numel();
  if (bytes == 0 || total <= most) {
    update_in_one_dtype(lists, update);
  } else {
    ForeachUpdate part;
    int64_t room = most;
    const auto end_part = [&] {
      part.stochastic_rounding = lists.stochastic_rounding;
      if (!part.parameters.empty()) update_in_one_dtype(part, update);
      part = {};
      room = most;
    };
    for (size_t i = 0; i < lists.parameters.size(); ++i) {
      const int64_t numel = lists.parameters[i].numel();
      if (numel > room && numel <= most) end_part();
      for (int64_t begin = 0; begin < numel;) {
        const int64_t count = std::min(numel - begin, room);
        append(part, lists, i, begin, count);
        begin += count;
        room -= count;
        if (room == 0) end_part();
      }
    }
    end_part();
  }
  if (!lists.rounded.empty()) at::_foreach_copy_(lists.rounded, lists.rounded_parameters);
}

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

namespace {

// p -= lr * direction * |p| / |direction| for whole tensors.
void take_lamb_step(const ForeachUpdate& lists) {
  ForeachUpdate with_directions = lists;
  auto& directions = with_directions.states[2];
  for (const at::Tensor& parameter : lists.parameters) directions.push_back(at::empty_like(parameter));
  update(UpdateKernel::kLambDirection, with_directions);
  std::vector<at::Tensor> measured = lists.parameters;
  measured.insert(measured.end(), directions.begin(), directions.end());
  const auto count = static_cast<int64_t>(directions.size());
  const at::Tensor norms = at::stack(at::_foreach_norm(measured, 2));
  const at::Tensor lengths = norms.narrow(0, 0, count), steps = norms.narrow(0, count, count);
  at::Tensor ratios = lengths / steps;  // 1 where a norm is 0, or none
  at::threshold_(ratios, 0, 1.0).nan_to_num_(1.0, 1.0);
  if (const at::Tensor& rate = lists.device_scalars[kRate]; rate.defined())
    ratios.mul_(rate);
  else
    ratios.mul_(lists.scalars[kRate][0]);
  at::_foreach_addcmul_(lists.parameters, directions, spread_like(ratios, directions), -1);
}

}  // namespace

void update_lamb(const ForeachUpdate& lists) {
  const int64_t most = kMostBytes / (kTemporaryLists * static_cast<int64_t>(c10::elementSize(computed_dtype(lists))));
  for (size_t begin = 0; begin < lists.parameters.size();) {
    ForeachUpdate part;
    part.stochastic_rounding = lists.stochastic_rounding;
    int64_t total = 0;  // a larger tensor is a part of its own: its norms are those of all of it
    size_t end = begin;
    do {
      append(part, lists, end, 0, lists.parameters[end].numel());
      total += lists.parameters[end].numel();
    } while (++end < lists.parameters.size() && total + lists.parameters[end].numel() <= most);
    update_in_one_dtype(part, take_lamb_step);
    begin = end;
  }
  if (!lists.rounded.empty()) at::_foreach_copy_(lists.rounded, lists.rounded_parameters);
}

}  // namespace accel::kernels
