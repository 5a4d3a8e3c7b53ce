// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/zip_reader.hpp"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/files/crc32.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "checkpoint/formats/torch/zip_format.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kLongestComment = 0xffff;
constexpr uint64_t kEncryptedFlag = 1;
constexpr size_t kOpenedTogether = 8;     // entries; the system may map 2 MiB of a file for one byte that is read
constexpr uint64_t kSizesFollowFlag = 8;  // a flag: the local header has no sizes

struct ZipDirectory {
  uint64_t begin;
  uint64_t end;
  uint64_t count;
};

struct ZipMember {
  ZipEntry entry;
  uint64_t header;  // where its local header begins
  uint64_t end;     // of its data
};

class ZipParser {
 public:
  ZipParser(std::string_view archive, const std::string& source)
      : archive_(archive), source_(source), data_end_(archive.size()) {}

  std::vector<ListedZipEntry> list() {
    const ZipDirectory directory = find_directory();
    data_end_ = directory.begin;
    std::vector<ListedZipEntry> entries;
    uint64_t position = directory.begin;
    for (uint64_t i = 0; i < directory.count; i++) entries.push_back(listed_entry(position, directory.end));
    if (position != directory.end) corrupt("its directory has bytes behind its ", directory.count, " entries");
    return entries;
  }

  std::vector<ZipEntry> parse() {
    std::vector<ZipMember> members;
    for (const ListedZipEntry& listed : list()) {
      members.push_back(open(listed));
      if (members.size() % kOpenedTogether == 0) forget_pages(archive_.data(), archive_.size());
    }
    check_layout(members);
    std::vector<ZipEntry> entries;
    entries.reserve(members.size());
    for (ZipMember& member : members) entries.push_back(std::move(member.entry));
    return entries;
  }

  ZipMember open(const ListedZipEntry& listed) const {
    const auto& [name, size, begin, checksum] = listed;
    const std::string_view header = range(begin, zip::kLocalBytes, "an entry");
    const uint64_t name_size = integer(header, 26, 2), extra_size = integer(header, 28, 2);
    const uint64_t data = begin + zip::kLocalBytes + name_size + extra_size;
    if (data > data_end_ || size > data_end_ - data)
      corrupt("the entry '", printable(name), "' lies beyond the beginning of its directory");
    const bool sizes_follow = (integer(header, 6, 2) & kSizesFollowFlag) != 0;
    std::string_view field =
        find_field(archive_.substr(begin + zip::kLocalBytes + name_size, extra_size), zip::kZip64Field, name);
    // Where the sizes follow the data, the header may leave them out.
    const auto agrees_with = [&](uint64_t local, uint64_t written) {
      return local == written || (sizes_follow && local == 0);
    };
    bool agrees = integer(header, 0, 4) == zip::kLocalHeader && integer(header, 8, 2) == 0 &&
                  archive_.substr(begin + zip::kLocalBytes, name_size) == name &&
                  agrees_with(integer(header, 14, 4), checksum);
    for (const size_t place : {22, 18}) {
      uint64_t local_size = integer(header, place, 4);
      widen(local_size, field, name);
      agrees = agrees && agrees_with(local_size, size);
    }
    if (!agrees) corrupt("the entry '", printable(name), "' and its place in the directory do not agree");
    return {{name, archive_.substr(data, size), checksum}, begin, data + size};
  }

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Status::kCorrupt, "'", source_, "' is not a valid zip archive: ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Status::kUnsupported, "'", source_, "' is a zip archive that is not read: ", parts...);
  }

  std::string_view range(uint64_t begin, uint64_t size, const char* what) const {
    if (begin > archive_.size() || size > archive_.size() - begin) corrupt(what, " lies beyond its end");
    return archive_.substr(begin, size);
  }

  static uint64_t integer(std::string_view bytes, size_t begin, size_t size) {
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[begin + i]);
    return number;
  }

  // The last record of the archive, whose comment ends where the archive ends.
  uint64_t find_end() const {
    if (archive_.size() < zip::kEndBytes)
      corrupt("it has ", archive_.size(), " bytes; expected at least ", zip::kEndBytes);
    const uint64_t last = archive_.size() - zip::kEndBytes;
    const uint64_t first = last < kLongestComment ? 0 : last - kLongestComment;
    for (uint64_t at = last + 1; at-- > first;) {
      const std::string_view record = archive_.substr(at, zip::kEndBytes);
      if (integer(record, 0, 4) == zip::kEnd && at + zip::kEndBytes + integer(record, 20, 2) == archive_.size())
        return at;
    }
    corrupt("its end is missing; it may have been cut short");
  }

  ZipDirectory find_directory() const {
    const uint64_t at = find_end();
    const std::string_view end = archive_.substr(at, zip::kEndBytes);
    ZipDirectory directory{integer(end, 16, 4), 0, integer(end, 10, 2)};
    uint64_t size = integer(end, 12, 4), expected_end = at;
    bool one_disk = integer(end, 4, 2) == 0 && integer(end, 6, 2) == 0 && integer(end, 8, 2) == directory.count;
    if (at >= zip::kLocator64Bytes && integer(archive_, at - zip::kLocator64Bytes, 4) == zip::kLocator64) {
      const std::string_view locator = archive_.substr(at - zip::kLocator64Bytes, zip::kLocator64Bytes);
      const uint64_t at64 = integer(locator, 8, 8);
      const std::string_view end64 = range(at64, zip::kEnd64Bytes, "the end of its directory");
      if (integer(end64, 0, 4) != zip::kEnd64) corrupt("the end of its directory is missing");
      directory = {integer(end64, 48, 8), 0, integer(end64, 32, 8)};
      size = integer(end64, 40, 8);
      expected_end = at64;
      one_disk = integer(locator, 4, 4) == 0 && integer(locator, 16, 4) <= 1 && integer(end64, 16, 4) == 0 &&
                 integer(end64, 20, 4) == 0 && integer(end64, 24, 8) == directory.count;
    }
    if (!one_disk) refuse("it has several parts");
    range(directory.begin, size, "its directory");
    directory.end = directory.begin + size;
    if (directory.end != expected_end) corrupt("its directory does not end where its last record begins");
    if (directory.count > size / zip::kCentralBytes)
      corrupt("its directory is too short for ", directory.count, " entries");
    return directory;
  }

  // Replaces a number of 32 bits that is full by that of the entry's field for 64 bits.
  void widen(uint64_t& number, std::string_view& field, const std::string& name) const {
    if (number != zip::kIn64Bits) return;
    if (field.size() < 8) corrupt("the entry '", printable(name), "' lacks a size or an offset");
    number = integer(field, 0, 8);
    field.remove_prefix(8);
  }

  std::string_view find_field(std::string_view extra, uint64_t wanted, const std::string& name) const {
    while (extra.size() >= 4) {
      const uint64_t id = integer(extra, 0, 2), size = integer(extra, 2, 2);
      if (size > extra.size() - 4) corrupt("a field of the entry '", printable(name), "' is cut short");
      if (id == wanted) return extra.substr(4, size);
      extra.remove_prefix(4 + size);
    }
    return {};
  }

  void check_name(const std::string& name) const {
    const bool climbs = ("/" + name + "/").find("/../") != std::string::npos;
    if (name.empty() || name.front() == '/' || climbs || name.find('\\') != std::string::npos ||
        name.find('\0') != std::string::npos)
      corrupt("an entry has the name '", printable(name), "'; expected a path inside of the archive");
  }

  // Reads an entry of the directory, and moves the position behind it.
  ListedZipEntry listed_entry(uint64_t& position, uint64_t end) const {
    if (end - position < zip::kCentralBytes) corrupt("its directory is cut short");
    const std::string_view header = archive_.substr(position, zip::kCentralBytes);
    if (integer(header, 0, 4) != zip::kCentralHeader) corrupt("an entry of its directory is damaged");
    const uint64_t name_size = integer(header, 28, 2), extra_size = integer(header, 30, 2);
    const uint64_t total = zip::kCentralBytes + name_size + extra_size + integer(header, 32, 2);
    if (total > end - position) corrupt("its directory is cut short");
    const std::string name(archive_.substr(position + zip::kCentralBytes, name_size));
    check_name(name);
    if ((integer(header, 8, 2) & kEncryptedFlag) != 0) refuse("the entry '", printable(name), "' is encrypted");
    const uint64_t method = integer(header, 10, 2);
    if (method != 0) refuse("the entry '", printable(name), "' is compressed by method ", method, "; expected stored");
    uint64_t stored = integer(header, 20, 4), size = integer(header, 24, 4), begin = integer(header, 42, 4);
    std::string_view field =
        find_field(archive_.substr(position + zip::kCentralBytes + name_size, extra_size), zip::kZip64Field, name);
    widen(size, field, name);
    widen(stored, field, name);
    widen(begin, field, name);
    if (stored != size)
      corrupt("the stored entry '", printable(name), "' has ", stored, " bytes; expected ", size, " as it says");
    position += total;
    return {name, size, begin, static_cast<uint32_t>(integer(header, 16, 4))};
  }

  void check_layout(const std::vector<ZipMember>& members) const {
    std::vector<const ZipMember*> order;
    std::unordered_set<std::string_view> names;
    for (const ZipMember& member : members) {
      order.push_back(&member);
      if (!names.insert(member.entry.name).second)
        corrupt("it has two entries named '", printable(member.entry.name), "'");
    }
    std::sort(order.begin(), order.end(), [](const ZipMember* a, const ZipMember* b) { return a->header < b->header; });
    for (size_t i = 1; i < order.size(); i++)
      if (order[i]->header < order[i - 1]->end)
        corrupt("its entries '", printable(order[i - 1]->entry.name), "' and '", printable(order[i]->entry.name),
                "' overlap");
  }

  std::string_view archive_;
  const std::string& source_;
  uint64_t data_end_;  // where the directory begins, once it is found
};

}  // namespace

std::vector<ZipEntry> read_zip(std::string_view archive, const std::string& source) {
  return ZipParser(archive, source).parse();
}

std::vector<ListedZipEntry> list_zip(std::string_view archive, const std::string& source) {
  return ZipParser(archive, source).list();
}

ZipEntry open_zip_entry(std::string_view archive, const ListedZipEntry& listed, const std::string& source) {
  return ZipParser(archive, source).open(listed).entry;
}

void check_zip_entry(const ZipEntry& entry, const std::string& source) {
  require(entry.checksum == 0 || crc32_of(entry.data.data(), entry.data.size()) == entry.checksum, Status::kCorrupt,
          "'", source, "' is damaged: its entry '", printable(entry.name),
          "' does not have the checksum that was written");
}

}  // namespace accel::checkpoint
