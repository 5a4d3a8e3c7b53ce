// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/file_hash.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/parallel.hpp"
#include "os/mapped_file.hpp"
#include "os/regular_file.hpp"

namespace accel::checkpoint {
namespace {

uint64_t combine(const std::vector<uint64_t>& blocks) {
  std::vector<unsigned char> bytes;
  bytes.reserve(blocks.size() * sizeof(uint64_t));
  for (const uint64_t hash : blocks)
    for (size_t byte = 0; byte < sizeof hash; byte++) bytes.push_back(static_cast<unsigned char>(hash >> (8 * byte)));
  return hash_of(bytes.data(), bytes.size());
}

// Pages in the page cache are hashed there. The rest is read into memory that stays in a cache of the processor,
// because the system reads ahead in larger chunks for a file that is read than for one that is mapped.
class PartReader {
 public:
  explicit PartReader(const MappedFile& mapped) : mapped_(mapped), file_(mapped.path()) {}

  uint64_t hash(size_t begin, size_t end) {
    constexpr size_t kWindow = size_t{16} << 20;  // whose pages are in memory at once
    ContentHash hash;
    for (; begin < end; begin += std::min(kWindow, end - begin)) add(begin, std::min(kWindow, end - begin), hash);
    return hash.value();
  }

 private:
  void add(size_t begin, size_t size, ContentHash& hash) {
    if (is_cached(mapped_.data() + begin, size)) {
      hash.add(mapped_.data() + begin, size);
      forget_pages(mapped_.data() + begin, size);
      return;
    }
    buffer_.resize(size_t{512} << 10);
    for (const size_t end = begin + size; begin < end;) {
      const size_t part = std::min(buffer_.size(), end - begin);
      require(file_.read_at(begin, buffer_.data(), part) == part, Status::kIo, "'", file_.path(),
              "' became shorter while it was read");
      hash.add(buffer_.data(), part);
      begin += part;
    }
  }

  const MappedFile& mapped_;
  RegularFile file_;
  std::vector<char> buffer_;
};

}  // namespace

void FileHash::add(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    if (filled_ == kHashBlock) {
      blocks_.push_back(block_.value());
      block_ = ContentHash();
      filled_ = 0;
    }
    const size_t part = std::min(size, kHashBlock - filled_);
    block_.add(next, part);
    filled_ += part;
    next += part;
    size -= part;
  }
}

uint64_t FileHash::value() const {
  if (blocks_.empty()) return block_.value();
  std::vector<uint64_t> all = blocks_;
  all.push_back(block_.value());
  return combine(all);
}

// Each thread opens the file, because the system reads ahead for each opened file on its own, and takes blocks that
// follow each other.
uint64_t hash_of_file(const MappedFile& file, size_t block) {
  if (block == 0) block = std::max(file.size(), size_t{1});
  std::vector<uint64_t> blocks((file.size() + block - 1) / block);
  const auto hash_blocks = [&](int64_t first, int64_t last) {
    PartReader reader(file);
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); i++)
      blocks[i] = reader.hash(i * block, std::min((i + 1) * block, file.size()));
  };
  if (blocks.size() > 1)
    kernels::parallel_for(static_cast<int64_t>(blocks.size()), 1, hash_blocks);
  else
    hash_blocks(0, static_cast<int64_t>(blocks.size()));
  if (blocks.empty()) return ContentHash().value();
  return blocks.size() == 1 ? blocks.front() : combine(blocks);
}

}  // namespace accel::checkpoint
