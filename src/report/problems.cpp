// SPDX-License-Identifier: Apache-2.0
#include "report/problems.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::report {
namespace {

constexpr size_t kMostProblems = 200;

}  // namespace

void Problems::add(const std::string& file, const char* kind, const std::string& words) {
  ++total_;
  const auto found = std::find_if(problems_.begin(), problems_.end(), [&file, kind](const Problem& problem) {
    return problem.file == file && problem.kind == kind;
  });
  if (found != problems_.end())
    ++found->count;
  else if (problems_.size() < kMostProblems)
    problems_.push_back({file, kind, 1, words});
}

std::string words_of(const Problem& problem) {
  return text(problem.file, ": ", problem.count, ' ', problem.kind,
              problem.count == 1 ? ": " : ", the first: ", problem.first);
}

}  // namespace accel::report
