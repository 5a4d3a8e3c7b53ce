// SPDX-License-Identifier: Apache-2.0
#include "comm/rounds.hpp"

#include <utility>

#include "base/current_call.hpp"

namespace accel::comm {
namespace {

// An asynchronous call, which keeps its turn until its last round is posted.
struct StartedCall : std::enable_shared_from_this<StartedCall> {
  StartedCall(std::shared_ptr<Communicator> communicator, Round first)
      : communicator(std::move(communicator)), round(std::move(first)) {}

  // Whether the call keeps its turn.
  bool post() noexcept {
    const CurrentCall current(function);
    const bool keeps_turn = !round.is_last;
    try {
      std::vector<Collective> collectives = std::move(round.collectives);
      communicator->post(collectives, RunsOn::kBackground)
          ->on_end([self = shared_from_this(), keeps_turn](const std::exception_ptr& error) {
            self->end_round(error, keeps_turn);
          });
    } catch (const std::exception&) {
      end_round(std::current_exception(), keeps_turn);
    }
    return keeps_turn;
  }

  void end_round(const std::exception_ptr& posted, bool has_turn) noexcept {
    const CurrentCall current(function);
    std::exception_ptr error;
    Outcome outcome;
    try {
      outcome = round.finish(posted);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    PostingOrder& order = communicator->group().order;
    if (!error && outcome.next) {
      round = std::move(*outcome.next);
      if (!post() && has_turn) order.end_turn();
      return;
    }
    round.finish = nullptr;  // what it held is free before anybody is notified of the end
    work->complete(std::move(outcome.result), error);
    if (has_turn) order.end_turn();
  }

  const std::shared_ptr<Communicator> communicator;
  const std::shared_ptr<Work> work = std::make_shared<Work>();
  const char* const function = CurrentCall::function();
  Round round;
};

}  // namespace

Outcome::Outcome(Round next) : next(std::make_shared<Round>(std::move(next))) {}

Round::Round(c10::IValue result)
    : Round({}, [result = std::move(result)](const std::exception_ptr& error) -> Outcome {
        rethrow(error);
        return result;
      }) {}

c10::IValue run(Communicator& communicator, Round round) {
  while (true) {
    std::exception_ptr error;
    try {
      communicator.run(round.collectives);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    Outcome outcome = round.finish(error);
    if (!outcome.next) return std::move(outcome.result);
    round = std::move(*outcome.next);
  }
}

std::shared_ptr<Work> start(const std::shared_ptr<Communicator>& communicator, const std::function<Round()>& first) {
  std::shared_ptr<StartedCall> call;
  try {
    call = std::make_shared<StartedCall>(communicator, first());
  } catch (const std::exception&) {
    auto failed = std::make_shared<Work>();
    failed->complete({}, std::current_exception());
    return failed;
  }
  communicator->group().order.post([call] { return call->post(); });
  return call->work;
}

}  // namespace accel::comm
