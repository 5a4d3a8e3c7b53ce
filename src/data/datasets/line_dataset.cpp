// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/line_dataset.hpp"

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "data/datasets/file_list.hpp"

namespace accel::data {

LineDataset::LineDataset(const std::string& path, const std::optional<std::string>& suffix, bool skips_malformed)
    : RowDataset(RowIndex(find_files(path, suffix, "text"), line_end, false)) {
  if (skips_malformed) skip_malformed();
}

c10::IValue LineDataset::read_item(int64_t index) const {
  const std::string_view line = rows().row(index);
  const size_t bad = first_bad_byte(line);
  if (bad < line.size())
    fail(Status::kCorrupt, rows().location(index), " is not text at byte ", bad, "; expected UTF-8 without NUL");
  return std::string(line);
}

}  // namespace accel::data
