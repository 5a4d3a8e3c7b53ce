// SPDX-License-Identifier: Apache-2.0
// The bytes of a pickle, with the position in them, and the errors that name both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace accel::checkpoint {

class PickleInput {
 public:
  PickleInput(std::string_view bytes, std::string source) : bytes_(bytes), source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  size_t size() const { return bytes_.size(); }
  size_t position() const { return position_; }

  std::string_view take(uint64_t size);
  uint64_t take_integer(size_t bytes);  // little-endian
  std::string_view take_line();
  uint64_t take_index_line();

  // kCorrupt
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' has a damaged pickle: ", parts..., " at byte ", position_);
  }
  // kUnsupported
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Status::kUnsupported, "'", source_, "' ", parts...,
         "; expected tensors, numbers, text, bytes, lists, tuples and maps alone");
  }

 private:
  std::string_view bytes_;
  std::string source_;
  size_t position_ = 0;
};

}  // namespace accel::checkpoint
