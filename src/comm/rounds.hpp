// SPDX-License-Identifier: Apache-2.0
// Schedule of a call in rounds of collectives: those of a round are posted together, and their results determine the
// next round (Hoefler, Lumsdaine and Rehm, "Implementation and performance analysis of non-blocking collective
// operations for MPI", 2007).
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

struct Round;

// The outcome of a round: the result of the call, or the next round.
struct Outcome {
  Outcome(c10::IValue result = {}) : result(std::move(result)) {}  // NOLINT(google-explicit-constructor)
  Outcome(Round next);                                             // NOLINT(google-explicit-constructor)

  c10::IValue result;
  std::shared_ptr<Round> next;  // null after the last
};

struct Round {
  using Finish = std::function<Outcome(const std::exception_ptr& error)>;

  // A call that is already complete.
  explicit Round(c10::IValue result);
  // `finish` is called when all are complete, also with their error, which it throws or replaces.
  Round(std::vector<Collective> collectives, Finish finish, bool is_last = true)
      : collectives(std::move(collectives)), finish(std::move(finish)), is_last(is_last) {}

  std::vector<Collective> collectives;
  Finish finish;
  bool is_last;  // otherwise another one may follow
};

inline void rethrow(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

// Runs a call and waits for its result.
c10::IValue run(Communicator& communicator, Round round);
// Starts a call. An exception of `first` becomes the error of the work, as one of the collectives does.
std::shared_ptr<Work> start(const std::shared_ptr<Communicator>& communicator, const std::function<Round()>& first);

}  // namespace accel::comm
