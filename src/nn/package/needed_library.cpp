// SPDX-License-Identifier: Apache-2.0
#include "nn/package/needed_library.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "os/file_descriptor.hpp"
#include "os/system_error.hpp"

namespace accel::nn {
namespace {

using FileHeader = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Entry = ElfW(Dyn);

constexpr size_t kMostEntries = 4096;
constexpr size_t kLongestName = 64;

template <typename Item>
bool read_item(int file, uint64_t offset, Item& item) {
  return pread(file, &item, sizeof(Item), static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof(Item));
}

// Where an address of the loaded library is in the file.
std::optional<uint64_t> offset_of(const std::vector<Segment>& segments, uint64_t address) {
  for (const Segment& segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return address - segment.p_vaddr + segment.p_offset;
  return std::nullopt;
}

std::vector<Segment> segments_of(int file) {
  FileHeader header{};
  if (!read_item(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32) ||
      header.e_phentsize != sizeof(Segment))
    return {};
  std::vector<Segment> segments;
  Segment segment{};
  for (size_t i = 0; i < header.e_phnum && read_item(file, header.e_phoff + i * sizeof(Segment), segment); i++)
    segments.push_back(segment);
  return segments;
}

std::string name_at(int file, uint64_t offset) {
  char name[kLongestName] = {};
  const ssize_t count = pread(file, name, sizeof(name) - 1, static_cast<off_t>(offset));
  return count > 0 ? name : "";
}

}  // namespace

void replace_needed_library(const std::string& path, std::string_view library, std::string_view other) {
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) fail_system(Status::kIo, "open", path);
  const std::vector<Segment> segments = segments_of(file.number());
  std::optional<uint64_t> names, replaced;
  std::optional<Entry> known;
  for (const int pass : {0, 1}) {  // first where the names are
    for (const Segment& segment : segments) {
      if (segment.p_type != PT_DYNAMIC) continue;
      Entry entry{};
      for (size_t i = 0; i < kMostEntries && read_item(file.number(), segment.p_offset + i * sizeof(Entry), entry);
           i++) {
        if (entry.d_tag == DT_NULL) break;
        if (pass == 0 && entry.d_tag == DT_STRTAB) names = offset_of(segments, entry.d_un.d_ptr);
        if (pass == 0 || !names || entry.d_tag != DT_NEEDED) continue;
        const std::string name = name_at(file.number(), *names + entry.d_un.d_val);
        if (name == library) replaced = segment.p_offset + i * sizeof(Entry);
        if (name == other) known = entry;
      }
    }
  }
  if (!replaced || !known) return;
  if (pwrite(file.number(), &*known, sizeof(Entry), static_cast<off_t>(*replaced)) !=
      static_cast<ssize_t>(sizeof(Entry)))
    fail_system(Status::kIo, "write", path);
}

}  // namespace accel::nn
