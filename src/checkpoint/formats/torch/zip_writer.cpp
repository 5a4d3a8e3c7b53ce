// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/zip_writer.hpp"

#include <algorithm>

#include "checkpoint/files/crc32.hpp"
#include "checkpoint/formats/torch/zip_format.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kZipVersion = 20;
constexpr uint64_t kZipVersion64 = 45;      // with numbers of 64 bits
constexpr uint64_t kEntryFlags = 0x0808;    // names are UTF-8; checksum and sizes follow the data
constexpr uint64_t kEntryDate = 0x21;       // 1980-01-01: files do not depend on the time
constexpr uint64_t kPaddingField = 0x4246;  // torch's
constexpr uint64_t kMostZipEntries = 0xffff;
constexpr size_t kZipChunk = size_t{1} << 19;  // stays in a cache of the core from its checksum to its write

class ZipRecord {
 public:
  ZipRecord& add(uint64_t number, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) bytes_.push_back(static_cast<char>(number >> (8 * i) & 0xff));
    return *this;
  }
  ZipRecord& add(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

uint64_t in_32_bits(uint64_t number) { return std::min(number, zip::kIn64Bits); }

}  // namespace

void ZipWriter::write(std::string_view bytes) {
  output_.write(bytes.data(), bytes.size());
  position_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::string_view data) {
  add(name, data.size(), [data](const Take& take) { take(data.data(), data.size()); });
}

void ZipWriter::add(const std::string& name, uint64_t size, const std::function<void(const Take&)>& read) {
  require(name.size() <= kMostZipEntries, Status::kInvalidArgument, "the name of an entry has ", name.size(),
          " bytes; expected at most ", kMostZipEntries);
  const bool is_large = size >= zip::kIn64Bits;
  Entry entry{name, position_, size, 0};
  ZipRecord sizes;  // of an entry of 4 GiB or more, in the descriptor behind its data
  if (is_large) sizes.add(zip::kZip64Field, 2).add(16, 2).add(0, 8).add(0, 8);
  constexpr uint64_t kFieldBytes = 4;
  const uint64_t unpadded = position_ + zip::kLocalBytes + name.size() + sizes.bytes().size() + kFieldBytes;
  const uint64_t padding = (alignment_ - unpadded % alignment_) % alignment_;
  ZipRecord header;
  header.add(zip::kLocalHeader, 4).add(is_large ? kZipVersion64 : kZipVersion, 2).add(kEntryFlags, 2).add(0, 2);
  header.add(0, 2)
      .add(kEntryDate, 2)
      .add(0, 4)
      .add(is_large ? zip::kIn64Bits : 0, 4)
      .add(is_large ? zip::kIn64Bits : 0, 4);
  header.add(name.size(), 2).add(sizes.bytes().size() + kFieldBytes + padding, 2).add(name).add(sizes.bytes());
  header.add(kPaddingField, 2).add(padding, 2).add(std::string(padding, 'Z'));
  write(header.bytes());

  Crc32 checksum;
  read([&](const char* data, size_t bytes) {
    for (size_t begin = 0; begin < bytes; begin += kZipChunk) {
      const std::string_view chunk = std::string_view(data, bytes).substr(begin, kZipChunk);
      checksum.add(chunk.data(), chunk.size());
      write(chunk);
    }
  });
  entry.checksum = checksum.value();
  const size_t size_bytes = is_large ? 8 : 4;
  write(ZipRecord()
            .add(zip::kDescriptor, 4)
            .add(entry.checksum, 4)
            .add(entry.size, size_bytes)
            .add(entry.size, size_bytes)
            .bytes());
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const uint64_t begin = position_;
  for (const Entry& entry : entries_) {
    ZipRecord wide;
    if (entry.size >= zip::kIn64Bits) wide.add(entry.size, 8).add(entry.size, 8);
    if (entry.begin >= zip::kIn64Bits) wide.add(entry.begin, 8);
    ZipRecord field;
    if (!wide.bytes().empty()) field.add(zip::kZip64Field, 2).add(wide.bytes().size(), 2).add(wide.bytes());
    const uint64_t version = wide.bytes().empty() ? kZipVersion : kZipVersion64;
    ZipRecord header;
    header.add(zip::kCentralHeader, 4)
        .add(version, 2)
        .add(version, 2)
        .add(kEntryFlags, 2)
        .add(0, 2)
        .add(0, 2)
        .add(kEntryDate, 2);
    header.add(entry.checksum, 4).add(in_32_bits(entry.size), 4).add(in_32_bits(entry.size), 4);
    header.add(entry.name.size(), 2).add(field.bytes().size(), 2).add(0, 2).add(0, 2).add(0, 2).add(0, 4);
    header.add(in_32_bits(entry.begin), 4).add(entry.name).add(field.bytes());
    write(header.bytes());
  }
  const uint64_t end = position_, size = end - begin;
  if (entries_.size() >= kMostZipEntries || begin >= zip::kIn64Bits || size >= zip::kIn64Bits) {
    ZipRecord end64;
    end64.add(zip::kEnd64, 4).add(44, 8).add(kZipVersion64, 2).add(kZipVersion64, 2).add(0, 4).add(0, 4);
    end64.add(entries_.size(), 8).add(entries_.size(), 8).add(size, 8).add(begin, 8);
    end64.add(zip::kLocator64, 4).add(0, 4).add(end, 8).add(1, 4);
    write(end64.bytes());
  }
  const uint64_t count = std::min<uint64_t>(entries_.size(), kMostZipEntries);
  write(ZipRecord()
            .add(zip::kEnd, 4)
            .add(0, 4)
            .add(count, 2)
            .add(count, 2)
            .add(in_32_bits(size), 4)
            .add(in_32_bits(begin), 4)
            .add(0, 2)
            .bytes());
}

}  // namespace accel::checkpoint
