// SPDX-License-Identifier: Apache-2.0
// Hashes of files, which threads compute together, and manifests of both versions that name them.
#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/files/file_hash.hpp"
#include "checkpoint/listed_file.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint_fixture.hpp"

namespace accel::checkpoint {
namespace file_hash_test {

using namespace tests;

std::string bytes_of(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i++) bytes[i] = static_cast<char>(i * 31 + i / 997);
  return bytes;
}

// As docs/checkpoint_format.md has it.
uint64_t hash_by_the_book(const std::string& bytes) {
  if (bytes.size() <= kHashBlock) return hash_of(bytes.data(), bytes.size());
  std::string hashes;
  for (size_t begin = 0; begin < bytes.size(); begin += kHashBlock) {
    const uint64_t hash = hash_of(bytes.data() + begin, std::min(kHashBlock, bytes.size() - begin));
    for (int shift = 0; shift < 64; shift += 8) hashes += static_cast<char>(hash >> shift);
  }
  return hash_of(hashes.data(), hashes.size());
}

void write_file(const std::string& path, const std::string& bytes) {
  AtomicFile file(path, quick_files());
  file.output().write(bytes.data(), bytes.size());
  file.output().finish(false);
  EXPECT_EQ(file.output().hash(), hash_by_the_book(bytes));
  file.commit();
}

TEST(FileHash, IsThatOfItsBlocksHoweverItIsComputed) {
  const Folder folder;
  for (const size_t size :
       {size_t{0}, size_t{9}, kHashBlock - 1, kHashBlock, kHashBlock + 1, 3 * kHashBlock, 3 * kHashBlock + 77}) {
    const std::string bytes = bytes_of(size);
    for (const size_t chunk : {size_t{1} << 20, kHashBlock, kHashBlock + 5, size + 1}) {
      FileHash hash;
      for (size_t begin = 0; begin < size; begin += chunk)
        hash.add(bytes.data() + begin, std::min(chunk, size - begin));
      EXPECT_EQ(hash.value(), hash_by_the_book(bytes)) << size << " bytes in chunks of " << chunk;
    }
    write_file(folder / "file", bytes);
    EXPECT_EQ(hash_of_file(MappedFile(folder / "file")), hash_by_the_book(bytes)) << size;
    EXPECT_EQ(hash_of_file(MappedFile(folder / "file"), 0), hash_of(bytes.data(), size)) << size;
  }
}

TEST(FileHash, ADamagedByteOfAnyBlockIsFoundByBothVersionsOfTheManifest) {
  const Folder folder;
  std::string bytes = bytes_of(2 * kHashBlock + 100);
  write_file(folder / "file", bytes);
  Manifest blocks, whole;
  blocks.hash_block = kHashBlock;
  blocks.files = {{"file", bytes.size(), hash_by_the_book(bytes)}};
  whole.files = {{"file", bytes.size(), hash_of(bytes.data(), bytes.size())}};
  EXPECT_NE(print_manifest(blocks).find("\"version\":3"), std::string::npos);
  EXPECT_NE(print_manifest(whole).find("\"version\":2"), std::string::npos);
  for (const Manifest& written : {blocks, whole}) {
    const Manifest manifest = parse_manifest(print_manifest(written), "manifest");
    EXPECT_EQ(manifest.hash_block, written.hash_block);
    EXPECT_EQ(open_listed(folder / ".", manifest, manifest.files.front(), true)->size(), bytes.size());
    for (const size_t place : {size_t{0}, kHashBlock, bytes.size() - 1}) {
      bytes[place] ^= 1;
      write_file(folder / "file", bytes);
      expect_error(Status::kCorrupt, "file' is damaged: its hash is",
                   [&] { open_listed(folder / ".", manifest, manifest.files.front(), true); });
      open_listed(folder / ".", manifest, manifest.files.front(), false);
      bytes[place] ^= 1;
    }
    write_file(folder / "file", bytes);
  }
}

}  // namespace file_hash_test
}  // namespace accel::checkpoint
