// SPDX-License-Identifier: Apache-2.0
// The bytes of many files as one text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/sequences/token_source.hpp"
#include "os/file_bytes.hpp"

namespace accel::data {

class TextSource final : public TokenSource {
 public:
  // Reads the files that find_files() finds.
  TextSource(const std::string& path, const std::optional<std::string>& suffix);
  int64_t size() const override { return ends_.back(); }
  void read(int64_t begin, int64_t count, int64_t* out) const override;
  std::string description() const override;

 private:
  std::string path_;
  std::vector<FileBytes> files_;
  std::vector<int64_t> ends_;  // of each file in the whole text
};

}  // namespace accel::data
