// SPDX-License-Identifier: Apache-2.0
// Zip archives: what is written is read by anyone, and what does not agree with itself is refused.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "checkpoint/formats/torch/zip_reader.hpp"
#include "checkpoint/formats/torch/zip_writer.hpp"
#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace zip_archive_test {

using namespace checkpoint::tests;

std::string archive_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  const Folder folder;
  AtomicFile file(folder / "a.zip", quick_files());
  ZipWriter zip(file.output(), 64);
  for (const auto& [name, data] : entries) zip.add(name, data);
  zip.finish();
  file.commit();
  return read_text(folder / "a.zip");
}

const std::string kGood = archive_of({{"a/first", "one"}, {"a/second", "two"}});

size_t place_of(const std::string& signature, int count = 1) {
  size_t place = kGood.find(signature);
  while (--count > 0) place = kGood.find(signature, place + 1);
  return place;
}
size_t local(int count) { return place_of("PK\x03\x04", count); }
size_t central(int count) { return place_of("PK\x01\x02", count); }
size_t end() { return place_of("PK\x05\x06"); }

std::string changed(size_t place, const std::string& bytes) {
  std::string archive = kGood;
  return archive.replace(place, bytes.size(), bytes);
}

TEST(ZipArchive, EntriesComeBackAndAreAligned) {
  const auto entries = read_zip(kGood, "a.zip");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "a/first");
  EXPECT_EQ(entries[1].data, "two");
  EXPECT_EQ(entries[0].checksum, 0x7a6c86f1U);  // CRC-32 of "one"
  for (const ZipEntry& entry : entries) {
    EXPECT_EQ((entry.data.data() - kGood.data()) % 64, 0);
    check_zip_entry(entry, "a.zip");
  }
  EXPECT_TRUE(read_zip(archive_of({}), "a.zip").empty());
}

TEST(ZipArchive, ACommentAndOtherFieldsAreNoMatter) {
  std::string archive = kGood;
  archive[archive.size() - 2] = 5;  // the length of the comment
  EXPECT_EQ(read_zip(archive + "hello", "a.zip").size(), 2U);
}

TEST(ZipArchive, MoreThan65535EntriesComeBack) {
  const Folder folder;
  constexpr size_t kCount = 70000;
  std::vector<std::pair<std::string, std::string>> entries;
  for (size_t i = 0; i < kCount; i++) entries.emplace_back(std::to_string(i), "");
  const std::string archive = archive_of(entries);
  EXPECT_NE(archive.find("PK\x06\x06"), std::string::npos);
  const auto read = read_zip(archive, "a.zip");
  ASSERT_EQ(read.size(), kCount);
  EXPECT_EQ(read.back().name, "69999");
}

// Leaves holes where zeros are written.
class SparseFiles final : public QuickFiles {
 public:
  ssize_t write(int descriptor, const void* data, size_t size) override {
    const auto* const bytes = static_cast<const char*>(data);
    const bool is_zero = size > 0 && bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
    if (!is_zero) return FileSystem::write(descriptor, data, size);
    return ::lseek(descriptor, static_cast<off_t>(size), SEEK_CUR) < 0 ? -1 : static_cast<ssize_t>(size);
  }
};

TEST(ZipArchive, AnEntryOf4GiBAndThoseBehindItComeBack) {
  const Folder folder;
  SparseFiles files;
  constexpr size_t kSize = (size_t{1} << 32) + 100;
  void* const zeros = ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  {
    AtomicFile file(folder / "a.zip", files);
    ZipWriter zip(file.output(), 64);
    zip.add("large", {static_cast<const char*>(zeros), kSize});
    zip.add("behind", "data");
    zip.finish();
    file.commit();
  }
  ::munmap(zeros, kSize);
  const MappedFile file(folder / "a.zip");
  const auto entries = read_zip(file.text(), "a.zip");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].data.size(), kSize);
  EXPECT_EQ(entries[0].data.back(), '\0');
  EXPECT_EQ(entries[1].data, "data");
  check_zip_entry(entries[1], "a.zip");
}

TEST(ZipArchive, WhatDoesNotAgreeWithItselfIsRefused) {
  const std::vector<std::tuple<const char*, std::string, Status, std::string>> attempts = {
      {"no end", kGood.substr(0, end()), Status::kCorrupt, "its end is missing"},
      {"nothing", "", Status::kCorrupt, "0 bytes"},
      {"bytes behind the end", kGood + "x", Status::kCorrupt, "its end is missing"},
      {"bytes before the beginning", "x" + kGood, Status::kCorrupt, "does not end where"},
      {"compressed", changed(central(1) + 10, std::string("\x08\0", 2)), Status::kUnsupported, "method 8"},
      {"encrypted", changed(central(1) + 8, std::string("\x01\x08", 2)), Status::kUnsupported, "encrypted"},
      {"several disks", changed(end() + 4, "\x01"), Status::kUnsupported, "several parts"},
      {"too many entries", changed(end() + 8, std::string("\x03\0\x03\0", 4)), Status::kCorrupt, "directory"},
      {"too few entries", changed(end() + 8, std::string("\x01\0\x01\0", 4)), Status::kCorrupt, "behind its 1 entries"},
      {"directory beyond the end", changed(end() + 16, "\xff\xff\xff\x7f"), Status::kCorrupt, "beyond its end"},
      {"directory at another place", changed(end() + 16, std::string(1, '\0')), Status::kCorrupt, "does not end where"},
      {"one name twice", changed(central(2) + 46, "a/first"), Status::kCorrupt, "do not agree"},
      {"the same entry twice", changed(central(2) + 42, std::string(4, '\0')), Status::kCorrupt, "do not agree"},
      {"an entry beyond the directory", changed(central(1) + 42, "\xf0\xff\xff"), Status::kCorrupt, "beyond its end"},
      {"a size beyond the directory", changed(central(1) + 20, std::string("\xff\xff\0\0\xff\xff\0\0", 8)),
       Status::kCorrupt, "beyond the beginning of its directory"},
      {"two sizes", changed(central(1) + 20, std::string("\x02\0\0\0", 4)), Status::kCorrupt,
       "has 2 bytes; expected 3"},
      {"sizes of 64 bits without their field", changed(central(1) + 20, std::string(8, '\xff')), Status::kCorrupt,
       "lacks a size"},
      {"another local name", changed(local(1) + 30, "b"), Status::kCorrupt, "do not agree"},
      {"another local method", changed(local(1) + 8, "\x08"), Status::kCorrupt, "do not agree"},
      {"another local size", changed(local(1) + 6, std::string("\0", 1)), Status::kCorrupt, "do not agree"},
      {"a local size that is wrong", changed(local(1) + 20, "\x01"), Status::kCorrupt, "do not agree"},
      {"a local checksum that is wrong", changed(local(1) + 14, "\x01"), Status::kCorrupt, "do not agree"},
      {"no local header", changed(local(1), "QK"), Status::kCorrupt, "do not agree"},
      {"a long local name", changed(local(1) + 26, "\xff\xff"), Status::kCorrupt, "beyond"},
      {"a damaged directory", changed(central(2), "QK"), Status::kCorrupt, "entry of its directory is damaged"},
      {"a name that is too long", changed(central(2) + 28, "\xff"), Status::kCorrupt, "cut short"},
  };
  for (const auto& [what, archive, status, part] : attempts) {
    SCOPED_TRACE(what);
    expect_error(status, part, [&, &archive = archive] { read_zip(archive, "a.zip"); });
  }
  for (const std::string name : {"../x", "a/../../x", "/etc/passwd", "a\\b", "..", "a/.."})
    expect_error(Status::kCorrupt, "path inside", [&] { read_zip(archive_of({{name, ""}}), "a.zip"); });
  expect_error(Status::kCorrupt, "two entries named 'x'", [] {
    read_zip(archive_of({{"x", "1"}, {"x", "1"}}), "a.zip");
  });
}

// Entries whose data overlap make a small file of any size when they are unpacked.
TEST(ZipArchive, OverlappingEntriesAreRefused) {
  const std::string inner = archive_of({{"inner", "data"}});
  const std::string archive = archive_of({{"outer", inner}});
  const auto outer = read_zip(archive, "a.zip").at(0);
  const auto begin = static_cast<uint32_t>(outer.data.data() - archive.data());
  const size_t directory = archive.rfind("PK\x01\x02");
  // The entry of the inner archive, as one of the outer.
  std::string header = inner.substr(inner.rfind("PK\x01\x02"), 46 + 5);
  for (int i = 0; i < 4; i++) header[42 + static_cast<size_t>(i)] = static_cast<char>(begin >> (8 * i));
  std::string overlapping = archive.substr(0, archive.size() - 22) + header + archive.substr(archive.size() - 22);
  const size_t end = overlapping.size() - 22;
  const auto size = static_cast<uint32_t>(end - directory);
  for (const size_t count : {8U, 10U}) overlapping[end + count] = 2;
  for (int i = 0; i < 4; i++) overlapping[end + 12 + static_cast<size_t>(i)] = static_cast<char>(size >> (8 * i));
  expect_error(Status::kCorrupt, "'outer' and 'inner' overlap", [&] { read_zip(overlapping, "a.zip"); });
}

TEST(ZipArchive, EveryChangedBitIsRefusedOrDoesNotMatter) {
  for (size_t bit = 0; bit < 8 * kGood.size(); bit++) {
    std::string archive = kGood;
    archive[bit / 8] = static_cast<char>(archive[bit / 8] ^ (1 << bit % 8));
    try {
      for (const ZipEntry& entry : read_zip(archive, "a.zip")) {
        const bool is_inside = entry.data.data() >= archive.data() &&
                               entry.data.data() + entry.data.size() <= archive.data() + archive.size();
        ASSERT_TRUE(is_inside) << bit;
        check_zip_entry(entry, "a.zip");
        EXPECT_TRUE((entry.data == "one" && entry.name == "a/first") ||
                    (entry.data == "two" && entry.name == "a/second"))
            << bit;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
    }
  }
}

}  // namespace zip_archive_test
}  // namespace accel::checkpoint
