// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/step_outcome.hpp"

#include <ATen/core/ivalue.h>

#include <cstdint>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/error_line.hpp"
#include "comm/error_status.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

// The last member of the outcome of a rank; without an error the status is that of success.
struct Outcome {
  double loss;
  Status status;
  std::string error;
};

Outcome outcome_in(const c10::IValue& gathered) {
  const auto members = tree::sequence_items(gathered);
  return {members[0].toDouble(), static_cast<Status>(members[1].toInt()), members[2].toStringRef()};
}

Outcome outcome_of(double loss, const std::exception_ptr& error, const std::string& action) {
  if (!error) return {loss, Status::kOk, ""};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    return {0, comm::status_of(failure), text(action, ": ", comm::error_line(failure))};
  }
}

}  // namespace

// A group that fails meanwhile does not hide this rank's error.
double agree_on_step(comm::Communicator& ranks, double loss, const std::exception_ptr& error, const std::string& action,
                     const char* kind) {
  const Outcome own = outcome_of(loss, error, action);
  c10::IValue all;
  try {
    all = comm::gather_object(
        ranks, tree::new_list({tree::new_list({own.loss, static_cast<int64_t>(own.status), own.error})}));
  } catch (const std::exception&) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  double sum = 0;
  int rank = 0;
  for (const c10::IValue& gathered : tree::sequence_items(all)) {
    const Outcome outcome = outcome_in(gathered);
    if (outcome.status != Status::kOk) fail(outcome.status, "rank ", rank, " ", kind, " failed in ", outcome.error);
    sum += outcome.loss;
    rank++;
  }
  return sum;
}

}  // namespace accel::parallel
