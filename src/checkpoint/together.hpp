// Steps that all ranks take, and after which all know whether all succeeded.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "checkpoint/training_state.hpp"

namespace accel::checkpoint {

// A rank's result of a step as text for the others.
std::string success_report(const std::string& text);
std::string failure_report(const std::exception_ptr& failure) noexcept;

// The texts of all ranks; throws the error of the first rank that failed.
std::vector<std::string> read_reports(const std::vector<std::string>& reports, const Ranks& ranks);

// `step` gives a text for the other ranks. Everybody throws when anybody does; a rank alone needs no report.
template <typename Step>
std::vector<std::string> together(const Ranks& ranks, Step&& step) {
  if (ranks.size == 1) return {step()};
  std::string report;
  try {
    report = success_report(step());
  } catch (...) {
    report = failure_report(std::current_exception());
  }
  return read_reports(ranks.all_gather(report), ranks);
}

}  // namespace accel::checkpoint
