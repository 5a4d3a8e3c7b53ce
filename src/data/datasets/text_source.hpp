// The bytes of many files as one text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::data {

// Large files are mapped, so that a text may be larger than memory; small ones
// are read together into one block, because a map for each of thousands of
// files costs more than their bytes. Files that are cut short while they are
// mapped end the process: that is the system's rule for maps.
class TextSource {
 public:
  TextSource(const std::string& path, const std::optional<std::string>& suffix);
  ~TextSource();
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  int64_t size() const { return size_; }
  // Bytes [begin, begin + count), which must be there, widened to what
  // embeddings look up.
  void read(int64_t begin, int64_t count, int64_t* out) const;

 private:
  class Map;
  struct Segment {
    int64_t begin;  // in the whole text
    const uint8_t* data;
    int64_t size;
  };

  void add_files(const std::vector<std::string>& files);
  void add_segment(const uint8_t* data, int64_t size);

  std::vector<Map> maps_;
  std::vector<std::vector<uint8_t>> blocks_;
  std::vector<Segment> segments_;
  int64_t size_ = 0;
};

}  // namespace accel::data
