// SPDX-License-Identifier: Apache-2.0
// Tokens one after another, of which windows are cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace accel::data {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  // Tokens [begin, begin + count), which must be there, widened to what embeddings look up.
  virtual void read(int64_t begin, int64_t count, int64_t* out) const = 0;
  // "text notes.txt has 7 bytes"
  virtual std::string description() const = 0;
};

// The numbers of a tensor of integers with one dimension on the CPU; it may be stored in a mapped file.
std::unique_ptr<const TokenSource> tensor_tokens(const at::Tensor& tokens);

}  // namespace accel::data
