// SPDX-License-Identifier: Apache-2.0
// Memory pattern: fills memory with numbers that depend on their place, and compares them a pass later, so that each
// cell holds its bits for a while, and holds the opposite bits in the next pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace accel::program {

class MemoryPattern {
 public:
  static constexpr size_t kSliceBytes = size_t{8} << 20;

  // Rounds `bytes` up to slices. Throws kOutOfMemory.
  explicit MemoryPattern(size_t bytes);
  ~MemoryPattern();
  MemoryPattern(const MemoryPattern&) = delete;
  MemoryPattern& operator=(const MemoryPattern&) = delete;

  // Compares the next slice with the former pass, and writes it for the next. Returns the first wrong word, or nothing.
  std::optional<std::string> check_slice();
  size_t bytes() const { return slices_ * kSliceBytes; }
  uint64_t bytes_written() const { return (pass_ * slices_ + next_) * kSliceBytes; }
  uint64_t bytes_compared() const { return compared_; }
  uint64_t* words() { return words_; }  // for tests

 private:
  size_t slices_;
  uint64_t* words_ = nullptr;
  size_t next_ = 0;    // slice
  uint64_t pass_ = 0;  // that writes now
  uint64_t compared_ = 0;
};

}  // namespace accel::program
