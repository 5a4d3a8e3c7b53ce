// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/encoded_text.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "data/datasets/file_list.hpp"
#include "os/file_bytes.hpp"

namespace accel::data {

std::unique_ptr<const TokenSource> encoded_text(const std::string& path, const std::optional<std::string>& suffix,
                                                const tokenizers::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  for (const std::string& name : find_files(path, suffix, "text")) {
    const FileBytes file(name);
    try {
      const std::vector<int64_t> more = tokenizer.encode({file.text(), std::nullopt});
      ids.insert(ids.end(), more.begin(), more.end());
    } catch (const Error& error) {
      fail(error.status(), "'", name, "': ", error.message());
    }
  }
  at::Tensor tokens = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), tokens.mutable_data_ptr<int64_t>());
  return tensor_tokens(tokens);
}

}  // namespace accel::data
