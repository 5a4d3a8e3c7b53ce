#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/files/checksum.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kFormat = "accel training state";
constexpr int64_t kVersion = 1;
constexpr const char* kChecksum = "crc32";
constexpr int64_t kLargestWorld = 1 << 20;

std::string print_checksum(uint32_t checksum) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", checksum);
  return text;
}

uint32_t parse_checksum(const std::string& text, const std::string& source) {
  uint32_t checksum = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
  require(text.size() == 8 && result.ec == std::errc() && result.ptr == text.data() + text.size(), Status::kCorrupt,
          "'", source, "' is damaged: '", text, "' is no checksum");
  return checksum;
}

Json encode_files(const std::vector<FileRecord>& files) {
  Json::Items items;
  for (const FileRecord& file : files) {
    Json::Members members;
    members.emplace_back("name", file.name);
    members.emplace_back("size", Json::number(static_cast<int64_t>(file.size)));
    members.emplace_back(kChecksum, print_checksum(file.crc32));
    items.emplace_back(std::move(members));
  }
  return Json(std::move(items));
}

// Only names in the folder itself, so that a manifest cannot refer to other files.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

std::vector<FileRecord> decode_files(const Json* list, const std::string& source) {
  require(list != nullptr && list->items() != nullptr, Status::kCorrupt, "'", source,
          "' is damaged: it has no list of files");
  std::vector<FileRecord> files;
  for (const Json& node : *list->items()) {
    FileRecord file{json_text(node, "name", ""), 0, parse_checksum(json_text(node, kChecksum, ""), source)};
    const int64_t size = json_integer(node, "size", -1);
    require(is_plain_name(file.name) && size >= 0, Status::kCorrupt, "'", source, "' is damaged: the file '", file.name,
            "' of ", size, " bytes cannot be");
    file.size = static_cast<uint64_t>(size);
    files.push_back(std::move(file));
  }
  return files;
}

// The part of the document that its checksum covers.
Json without_checksum(const Json& document) {
  Json::Members members;
  for (const auto& member : *document.members())
    if (member.first != kChecksum) members.push_back(member);
  return Json(std::move(members));
}

// Any error of the JSON functions means here that the document is damaged.
template <typename Body>
auto or_corrupt(const std::string& source, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.status() == Status::kCorrupt) throw;
    fail(Status::kCorrupt, "'", source, "' is damaged: ", error.message());
  }
}

}  // namespace

const FileRecord* Manifest::find(std::string_view name) const {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const FileRecord& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

std::string print_file_records(const std::vector<FileRecord>& files) { return print_json(encode_files(files)); }

std::vector<FileRecord> parse_file_records(std::string_view text, const std::string& source) {
  return or_corrupt(source, [&] {
    const Json list = parse_json(text, "the list of files");
    return decode_files(&list, source);
  });
}

std::string print_manifest(const Manifest& manifest) {
  Json::Members members;
  members.emplace_back("format", kFormat);
  members.emplace_back("version", Json::number(kVersion));
  members.emplace_back("world_size", Json::number(int64_t{manifest.world_size}));
  members.emplace_back("files", encode_files(manifest.files));
  const std::string listed = print_json(Json(members));
  members.emplace_back(kChecksum, print_checksum(checksum_of(listed.data(), listed.size())));
  return print_json(Json(std::move(members))) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  return or_corrupt(source, [&] {
    const Json json = parse_json(text, "it");
    const std::string format = json_text(json, "format", "");
    require(format == kFormat, Status::kCorrupt, "'", source, "' has the format '", format, "'; expected '", kFormat,
            "'");
    const int64_t version = json_integer(json, "version", -1);
    require(version == kVersion, Status::kCorrupt, "'", source, "' has version ", version,
            "; this library reads version ", kVersion);
    const uint32_t expected = parse_checksum(json_text(json, kChecksum, ""), source);
    const std::string listed = print_json(without_checksum(json));
    require(checksum_of(listed.data(), listed.size()) == expected, Status::kCorrupt, "'", source,
            "' is damaged: its checksum is wrong");
    Manifest manifest;
    const int64_t world_size = json_integer(json, "world_size", 0);
    require(world_size >= 1 && world_size <= kLargestWorld, Status::kCorrupt, "'", source, "' has world size ",
            world_size, "; expected at least 1");
    manifest.world_size = static_cast<int>(world_size);
    manifest.files = decode_files(json_member(json, "files"), source);
    return manifest;
  });
}

Manifest load_manifest(const std::string& folder) {
  const MappedFile file(folder + "/" + kManifestName);
  return parse_manifest(file.text(), file.path());
}

std::shared_ptr<const MappedFile> open_verified(const std::string& folder, const FileRecord& record) {
  auto file = std::make_shared<const MappedFile>(folder + "/" + record.name);
  require(file->size() == record.size, Status::kCorrupt, "'", file->path(), "' has ", file->size(), " bytes; ",
          kManifestName, " says ", record.size);
  const uint32_t checksum = checksum_of(file->data(), file->size());
  require(checksum == record.crc32, Status::kCorrupt, "'", file->path(), "' is damaged: its checksum is ",
          print_checksum(checksum), "; ", kManifestName, " says ", print_checksum(record.crc32));
  return file;
}

}  // namespace accel::checkpoint
