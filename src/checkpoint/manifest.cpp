// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.hpp"
#include "checkpoint/files/content_hash.hpp"
#include "json/json.hpp"
#include "os/mapped_file.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kFormat = "accel checkpoint";
constexpr int64_t kManifestVersion = 3;  // 1 was state.json, of other files
constexpr int64_t kWithoutBlocks = 2;    // whose hashes are of whole files
constexpr const char* kHash = "xxh3_64";
constexpr size_t kHashDigits = 16;
constexpr int64_t kLargestWorld = 1 << 20;

Json encode_files(const std::vector<FileRecord>& files) {
  Json::Items items;
  for (const FileRecord& file : files) {
    Json::Members members;
    members.emplace_back("name", file.name);
    members.emplace_back("size", Json::number(static_cast<int64_t>(file.size)));
    members.emplace_back(kHash, print_hash(file.hash));
    items.emplace_back(std::move(members));
  }
  return Json(std::move(items));
}

// Only files below the folder: a manifest cannot refer to others.
bool is_inside(std::string_view path) {
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::vector<FileRecord> decode_files(const Json* list, const std::string& source) {
  require(list != nullptr && list->items() != nullptr, Status::kCorrupt, "'", source,
          "' is damaged: it has no list of files");
  std::vector<FileRecord> files;
  for (const Json& node : *list->items()) {
    FileRecord file{json_text(node, "name", ""), 0, parse_hash(json_text(node, kHash, ""), source)};
    const int64_t size = json_integer(node, "size", -1);
    require(is_inside(file.name) && size >= 0, Status::kCorrupt, "'", source, "' is damaged: the file '", file.name,
            "' of ", size, " bytes cannot be");
    file.size = static_cast<uint64_t>(size);
    files.push_back(std::move(file));
  }
  return files;
}

// The part of the document that its own hash covers.
Json without_hash(const Json& document) {
  Json::Members members;
  for (const auto& member : *document.members())
    if (member.first != kHash) members.push_back(member);
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

std::string print_hash(uint64_t hash) {
  char digits[kHashDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

uint64_t parse_hash(const std::string& digits, const std::string& source) {
  uint64_t hash = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  require(digits.size() == kHashDigits && result.ec == std::errc() && result.ptr == digits.data() + digits.size(),
          Status::kCorrupt, "'", source, "' is damaged: '", digits, "' is not a hash of ", kHashDigits, " digits");
  return hash;
}

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
  members.emplace_back("version", Json::number(manifest.hash_block == 0 ? kWithoutBlocks : kManifestVersion));
  members.emplace_back("library", manifest.library);
  members.emplace_back("libtorch", manifest.libtorch);
  members.emplace_back("world_size", Json::number(int64_t{manifest.world_size}));
  members.emplace_back("mesh", manifest.mesh);
  members.emplace_back("iteration", Json::number(manifest.iteration));
  if (manifest.hash_block != 0)
    members.emplace_back("hash_block", Json::number(static_cast<int64_t>(manifest.hash_block)));
  members.emplace_back("files", encode_files(manifest.files));
  const std::string listed = print_json(Json(members));
  members.emplace_back(kHash, print_hash(hash_of(listed.data(), listed.size())));
  return print_json(Json(std::move(members))) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  return or_corrupt(source, [&] {
    const Json json = parse_json(text, "it");
    const std::string format = json_text(json, "format", "");
    require(format == kFormat, Status::kCorrupt, "'", source, "' has the format '", format, "'; expected '", kFormat,
            "'");
    const int64_t version = json_integer(json, "version", -1);
    require(version == kManifestVersion || version == kWithoutBlocks, Status::kCorrupt, "'", source, "' has version ",
            version, "; this library reads versions ", kWithoutBlocks, " and ", kManifestVersion);
    const uint64_t expected = parse_hash(json_text(json, kHash, ""), source);
    const std::string listed = print_json(without_hash(json));
    require(hash_of(listed.data(), listed.size()) == expected, Status::kCorrupt, "'", source,
            "' is damaged: its hash is wrong");
    Manifest manifest;
    manifest.library = json_text(json, "library", "");
    manifest.libtorch = json_text(json, "libtorch", "");
    manifest.mesh = json_text(json, "mesh", "");
    manifest.iteration = json_integer(json, "iteration", 0);
    const int64_t hash_block = version == kWithoutBlocks ? 0 : json_integer(json, "hash_block", -1);
    require(version == kWithoutBlocks || hash_block > 0, Status::kCorrupt, "'", source, "' has the hash_block ",
            hash_block, "; expected a number of bytes");
    manifest.hash_block = static_cast<size_t>(hash_block);
    const int64_t world_size = json_integer(json, "world_size", 0);
    require(world_size >= 1 && world_size <= kLargestWorld, Status::kCorrupt, "'", source, "' has world size ",
            world_size, "; expected at least 1");
    manifest.world_size = static_cast<int>(world_size);
    manifest.files = decode_files(json_member(json, "files"), source);
    return manifest;
  });
}

bool has_manifest(const std::string& folder) { return ::access((folder + "/" + kManifestName).c_str(), F_OK) == 0; }

Manifest load_manifest(const std::string& folder) {
  const MappedFile file(folder + "/" + kManifestName);
  return parse_manifest(file.text(), file.path());
}

}  // namespace accel::checkpoint
