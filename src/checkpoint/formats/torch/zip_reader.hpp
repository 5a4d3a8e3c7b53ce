// SPDX-License-Identifier: Apache-2.0
// Reader of zip archives of stored entries, as torch writes them. Entries are parts of the archive, not copies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::checkpoint {

struct ZipEntry {
  std::string name;
  std::string_view data;
  uint32_t checksum;  // CRC-32; 0 if the writer computed none
};

// Checks everything but the checksums: entries lie within the archive, without overlap, each name once, and both of its
// headers agree. `source` names the archive in errors: kCorrupt, or kUnsupported for compressed or encrypted entries.
std::vector<ZipEntry> read_zip(std::string_view archive, const std::string& source);

// The description of an entry in the directory at the end of the archive.
struct ListedZipEntry {
  std::string name;
  uint64_t size;
  uint64_t header;  // where its own header begins
  uint32_t checksum;
};

// Reads the directory alone, and no page of the entries: those of a large file may have to come from the disk, one by
// one.
std::vector<ListedZipEntry> list_zip(std::string_view archive, const std::string& source);
ZipEntry open_zip_entry(std::string_view archive, const ListedZipEntry& listed, const std::string& source);

// kCorrupt if the data is not what was written.
void check_zip_entry(const ZipEntry& entry, const std::string& source);

}  // namespace accel::checkpoint
