// SPDX-License-Identifier: Apache-2.0
#include "operator_profile.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace bench {
namespace {

thread_local OperatorProfile *active = nullptr;

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

OperatorTotals &OperatorTotals::operator+=(const OperatorTotals &other) {
  calls += other.calls;
  seconds += other.seconds;
  flops += other.flops;
  bytes += other.bytes;
  return *this;
}

OperatorProfile::OperatorProfile() {
  active = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

OperatorProfile::~OperatorProfile() {
  at::removeCallback(handle_);
  active = nullptr;
}

std::unique_ptr<at::ObserverContext> OperatorProfile::on_begin(const at::RecordFunction &function) {
  // LibTorch gives a thread's callbacks to those that work for it; their time runs beside ours.
  if (active != nullptr) active->begin(function);
  return nullptr;
}

void OperatorProfile::on_end(const at::RecordFunction &function, at::ObserverContext * /*context*/) {
  if (active != nullptr) active->end(function);
}

OperatorProfile::Operator &OperatorProfile::find(const at::RecordFunction &function) {
  static const std::string engine = "autograd::engine::";
  const std::string name = function.name(), overload = function.overload_name();
  const auto [place, is_new] = operators_.try_emplace(name + '.' + overload);
  Operator &found = place->second;
  if (is_new)
    found = {
        name.compare(0, engine.size(), engine) == 0 ? "autograd engine" : name, find_operator_kind(name, overload), {}};
  const bool is_cast =
      found.kind.is_autocast && !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU);
  return is_cast ? autocast_ : found;
}

void OperatorProfile::begin(const at::RecordFunction &function) {
  if (!calls_.empty() && calls_.back().of->kind.has_kernel) {
    ++below_kernel_;
    return;
  }
  const Clock::time_point seen = Clock::now();
  Operator &of = find(function);
  calls_.push_back({&of, work_of_arguments(of.kind, function.inputs()), {}, 0, seen});
  calls_.back().begin = Clock::now();
}

void OperatorProfile::end(const at::RecordFunction &function) {
  if (below_kernel_ > 0) {
    --below_kernel_;
    return;
  }
  const Clock::time_point end = Clock::now();
  Call call = std::move(calls_.back());
  calls_.pop_back();
  add_results(call.of->kind, function.outputs(), call.work);
  const double seconds = seconds_between(call.begin, end);
  call.of->totals[call.work.dtype] += {1, seconds - call.nested, call.work.flops, call.work.bytes};
  const double in_all = seconds_between(call.seen, Clock::now());
  observing_ += in_all - seconds;
  if (!calls_.empty()) calls_.back().nested += in_all;
}

std::map<std::pair<std::string, c10::ScalarType>, OperatorTotals> OperatorProfile::totals() const {
  std::map<std::pair<std::string, c10::ScalarType>, OperatorTotals> all;
  const auto add = [&](const Operator &of) {
    for (const auto &[dtype, totals] : of.totals) all[{of.name, dtype}] += totals;
  };
  for (const auto &[key, of] : operators_) add(of);
  add(autocast_);
  return all;
}

}  // namespace bench
