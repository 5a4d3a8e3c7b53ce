// SPDX-License-Identifier: Apache-2.0
// Runs a step on every rank and agrees on whether it succeeded everywhere.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

// The result of a step on one rank, as text for the others.
std::string success_report(const std::string& text);
std::string failure_report(const std::exception_ptr& failure) noexcept;

// The texts of the ranks that share a folder; throws the error of the first rank of all that failed.
std::vector<std::string> read_reports(const std::vector<std::string>& reports, const Ranks& ranks);

// `step` returns a text for the other ranks of its folder, whose texts are returned. If it throws on any rank, all
// ranks throw. Where the ranks cannot be asked any more, because one was lost in the step, its own failure is thrown.
template <typename Step>
std::vector<std::string> run_on_all_ranks(const Ranks& ranks, Step&& step) {
  if (ranks.size == 1) return {step()};
  std::string report;
  std::exception_ptr failure;
  try {
    report = success_report(step());
  } catch (...) {
    failure = std::current_exception();
    report = failure_report(failure);
  }
  std::vector<std::string> reports;
  try {
    reports = ranks.all_gather(report);
  } catch (...) {
    if (failure) std::rethrow_exception(failure);
    throw;
  }
  return read_reports(reports, ranks);
}

}  // namespace accel::checkpoint
