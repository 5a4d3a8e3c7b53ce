// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/documents.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/error.hpp"

namespace accel::data {

DocumentOffsets documents_ended_by(const TokenSource& tokens, int64_t end_of_document) {
  constexpr int64_t kBlock = 1 << 16;
  std::vector<int64_t> block(kBlock);
  DocumentOffsets offsets{0};
  for (int64_t begin = 0; begin < tokens.size(); begin += kBlock) {
    const int64_t count = std::min(kBlock, tokens.size() - begin);
    tokens.read(begin, count, block.data());
    for (int64_t i = 0; i < count; ++i)
      if (block[i] == end_of_document) offsets.push_back(begin + i + 1);
  }
  if (offsets.back() < tokens.size()) offsets.push_back(tokens.size());
  return offsets;
}

DocumentOffsets documents_of_offsets(const TokenSource& tokens, const at::Tensor& offsets) {
  require(
      offsets.defined() && offsets.dim() == 1 && offsets.numel() > 0 && offsets.scalar_type() == at::kLong &&
          offsets.device().is_cpu(),
      Status::kTypeMismatch,
      "the document offsets are not an int64 tensor [documents + 1] on the CPU; expected where each document begins, "
      "and the end of the last");
  const at::Tensor begins = offsets.contiguous();
  DocumentOffsets numbers(begins.const_data_ptr<int64_t>(), begins.const_data_ptr<int64_t>() + begins.numel());
  require(numbers.front() == 0 && numbers.back() == tokens.size(), Status::kInvalidArgument,
          "the document offsets go from ", numbers.front(), " to ", numbers.back(), "; expected 0 to the ",
          tokens.size(), " tokens that there are");
  for (size_t i = 1; i < numbers.size(); ++i)
    require(numbers[i - 1] <= numbers[i], Status::kInvalidArgument, "document ", i - 1, " begins at ", numbers[i - 1],
            " and ends at ", numbers[i], "; expected offsets that do not fall");
  return numbers;
}

}  // namespace accel::data
