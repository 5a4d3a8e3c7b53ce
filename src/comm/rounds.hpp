// A call as rounds of collectives: those of a round are posted together, and what they brought says what the next round
// is (a schedule: Hoefler, Lumsdaine and Rehm, "Implementation and performance analysis of non-blocking collective
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

// What a round leads to.
struct Outcome {
  Outcome(c10::IValue result = {}) : result(std::move(result)) {}  // NOLINT(google-explicit-constructor)
  Outcome(Round next);                                             // NOLINT(google-explicit-constructor)

  c10::IValue result;
  std::shared_ptr<Round> next;  // null after the last
};

struct Round {
  using Finish = std::function<Outcome(const std::exception_ptr& error)>;

  // The end of a call whose result is there.
  explicit Round(c10::IValue result);
  // `finish` is called once all of them have ended, also with their error, which it throws or replaces.
  Round(std::vector<Collective> collectives, Finish finish, bool is_last = true)
      : collectives(std::move(collectives)), finish(std::move(finish)), is_last(is_last) {}

  std::vector<Collective> collectives;
  Finish finish;
  bool is_last;  // else another one may follow
};

inline void rethrow(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

// A blocking call.
c10::IValue run(Communicator& communicator, Round round);
// Starts a call. What `first` throws is the error of the work, as is that of the collectives.
std::shared_ptr<Work> start(const std::shared_ptr<Communicator>& communicator, const std::function<Round()>& first);

}  // namespace accel::comm
