// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/text_source.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "data/datasets/file_list.hpp"

namespace accel::data {

TextSource::TextSource(const std::string& path, const std::optional<std::string>& suffix) : path_(path) {
  int64_t end = 0;
  for (const auto& file : find_files(path, suffix, "text")) {
    files_.emplace_back(file);
    ends_.push_back(end += static_cast<int64_t>(files_.back().text().size()));
  }
}

std::string TextSource::description() const { return text("text ", path_, " has ", size(), " bytes"); }

void TextSource::read(int64_t begin, int64_t count, int64_t* out) const {
  auto file = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (; count > 0; ++file) {
    const int64_t part = std::min(count, ends_[file] - begin);
    const std::string_view bytes = files_[file].text();
    const auto* const end = reinterpret_cast<const uint8_t*>(bytes.data() + bytes.size());
    out = std::copy_n(end - (ends_[file] - begin), part, out);
    begin += part;
    count -= part;
  }
}

}  // namespace accel::data
