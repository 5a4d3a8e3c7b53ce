// SPDX-License-Identifier: Apache-2.0
// Counts what could not be read by file and kind, and keeps the first message of each kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accel::report {

struct Problem {
  std::string file;
  std::string kind;  // "damaged lines"
  int64_t count = 0;
  std::string first;  // "line 7: ..."
};

class Problems {
 public:
  void add(const std::string& file, const char* kind, const std::string& words);

  const std::vector<Problem>& all() const { return problems_; }
  // Changes with each that is added.
  int64_t total() const { return total_; }

 private:
  std::vector<Problem> problems_;
  int64_t total_ = 0;
};

// "metrics.jsonl: 3 damaged lines, the first: line 7: ..."
std::string words_of(const Problem& problem);

}  // namespace accel::report
