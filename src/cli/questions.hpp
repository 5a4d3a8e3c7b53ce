// SPDX-License-Identifier: Apache-2.0
// Questions on a terminal, each with its default; an answer that cannot be is asked for again.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace accel::program {

class Questions {
 public:
  // Status::kInvalidState without a terminal: nobody is there to answer. `instead` says what to do then.
  explicit Questions(const std::string& instead);

  bool yes(const std::string& question, bool otherwise) const;
  // One of the names, which may be answered by its number, too.
  std::string choice(const std::string& question, const std::vector<std::string>& names, size_t otherwise = 0) const;
  int64_t integer(const std::string& question, int64_t otherwise, int64_t low = 1,
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  double number(const std::string& question, double otherwise) const;
  // Without a default (empty) there has to be an answer.
  std::string text(const std::string& question, const std::string& otherwise = "") const;

  void say(const std::string& line) const;

 private:
  // Status::kCancelled at the end of the input.
  std::string answer(const std::string& question, const std::string& otherwise) const;
};

}  // namespace accel::program
