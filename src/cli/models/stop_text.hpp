// SPDX-License-Identifier: Apache-2.0
// Ends a text at the first of some strings, however the text is cut into chunks. What may be the beginning of a string
// is held back until it is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accel::program {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Adds a chunk. Returns the text that is certain now.
  std::string add(std::string_view piece);
  // Returns the text that was held back: nothing follows.
  std::string finish();
  // Whether a string has come: its text and all behind it are dropped.
  bool has_stopped() const { return has_stopped_; }

 private:
  const std::vector<std::string> stops_;
  std::string held_;
  bool has_stopped_ = false;
};

}  // namespace accel::program
