// Windows over the bytes of text files, for models that read bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/dataset.hpp"

namespace accel::data {

class TextSource;

// Item i is a list of two int64 tensors [sequence_length]: the bytes from i *
// sequence_length on, and the same shifted by one.
class TextDataset final : public Dataset {
 public:
  // A file, or all regular files below a folder in the order of their paths;
  // with a suffix only those that end so.
  TextDataset(const std::string& path, const std::optional<std::string>& suffix, int64_t sequence_length);
  ~TextDataset() override;
  int64_t length() const override { return length_; }

 protected:
  c10::IValue read_item(int64_t index) const override;
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation& collation) const override;

 private:
  std::unique_ptr<const TextSource> source_;
  int64_t sequence_length_;
  int64_t length_;
};

}  // namespace accel::data
