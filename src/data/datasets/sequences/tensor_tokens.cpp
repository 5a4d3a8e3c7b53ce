// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/error.hpp"
#include "data/datasets/sequences/token_source.hpp"

namespace accel::data {
namespace {

template <typename Number>
class TensorTokens final : public TokenSource {
 public:
  explicit TensorTokens(at::Tensor tokens)
      : tokens_(std::move(tokens)), numbers_(static_cast<const Number*>(tokens_.const_data_ptr())) {}
  int64_t size() const override { return tokens_.numel(); }
  void read(int64_t begin, int64_t count, int64_t* out) const override { std::copy_n(numbers_ + begin, count, out); }
  std::string description() const override { return text("the tensor has ", size(), " tokens"); }

 private:
  at::Tensor tokens_;
  const Number* numbers_;
};

}  // namespace

std::unique_ptr<const TokenSource> tensor_tokens(const at::Tensor& tokens) {
  require(tokens.defined() && tokens.dim() == 1, Status::kShapeMismatch,
          "the tokens are not a tensor with one dimension; expected one token behind the other");
  require(tokens.device().is_cpu() && tokens.layout() == at::kStrided, Status::kUnsupported, "the tokens are on ",
          tokens.device(), "; expected a dense tensor on the CPU");
  const at::Tensor flat = tokens.detach().contiguous();
  switch (flat.scalar_type()) {
    case at::kByte:
      return std::make_unique<const TensorTokens<uint8_t>>(flat);
    case at::kUInt16:
      return std::make_unique<const TensorTokens<uint16_t>>(flat);
    case at::kUInt32:
      return std::make_unique<const TensorTokens<uint32_t>>(flat);
    case at::kChar:
      return std::make_unique<const TensorTokens<int8_t>>(flat);
    case at::kShort:
      return std::make_unique<const TensorTokens<int16_t>>(flat);
    case at::kInt:
      return std::make_unique<const TensorTokens<int32_t>>(flat);
    case at::kLong:
      return std::make_unique<const TensorTokens<int64_t>>(flat);
    default:
      fail(Status::kTypeMismatch, "the tokens have dtype ", c10::toString(flat.scalar_type()),
           "; expected integers of at most 64 bits with a sign, or 32 without");
  }
}

}  // namespace accel::data
