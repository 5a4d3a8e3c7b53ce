// SPDX-License-Identifier: Apache-2.0
// Where the time of this thread goes, by operator of LibTorch.
#pragma once

#include <ATen/record_function.h>

#include <chrono>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator_work.hpp"

namespace bench {

// What an operator with a kernel of its own calls belongs to it; all others have the time without those that they call.
// The operators of autocast are "autocast", the nodes of autograd have their own names beside "autograd engine".
struct OperatorTotals {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;

  OperatorTotals &operator+=(const OperatorTotals &other);
};

// Observes the operators of its thread, forward and backward, while it lives. One at a time in a thread.
class OperatorProfile {
 public:
  OperatorProfile();
  ~OperatorProfile();
  OperatorProfile(const OperatorProfile &) = delete;
  OperatorProfile &operator=(const OperatorProfile &) = delete;

  // By name and dtype.
  std::map<std::pair<std::string, c10::ScalarType>, OperatorTotals> totals() const;
  // Seconds that the observing itself took, in no operator's time.
  double observing() const { return observing_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Operator {
    std::string name;
    OperatorKind kind;
    std::map<c10::ScalarType, OperatorTotals> totals;
  };
  struct Call {
    Operator *of;
    OperatorWork work;
    Clock::time_point begin;
    double nested;  // seconds of the calls inside, and of observing them
    Clock::time_point seen;
  };

  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction &function);
  static void on_end(const at::RecordFunction &function, at::ObserverContext *context);
  Operator &find(const at::RecordFunction &function);
  void begin(const at::RecordFunction &function);
  void end(const at::RecordFunction &function);

  std::unordered_map<std::string, Operator> operators_;
  Operator autocast_{"autocast", {}, {}};
  std::vector<Call> calls_;  // those that have not returned, the innermost last
  int64_t below_kernel_ = 0;
  double observing_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace bench
