// SPDX-License-Identifier: Apache-2.0
#include "report/embedded_picture.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"
#include "os/system_error.hpp"

namespace accel::report {
namespace {

// Part by part, so that no link leads out of the folder, also if somebody changes it meanwhile.
FileDescriptor open_inside(const std::string& folder, const std::string& file) {
  require(!file.empty() && file.front() != '/' && file.find('\0') == std::string::npos, Status::kUnsupported, "'", file,
          "' is not inside of the folder of the run");
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) fail_system(Status::kIo, "open", folder);
  std::string_view rest = file;
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string part(rest.substr(0, slash));
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    require(part != "..", Status::kUnsupported, "'", file, "' is not inside of the folder of the run");
    const int kind = rest.empty() ? O_NONBLOCK : O_DIRECTORY;
    FileDescriptor next(::openat(opened.number(), part.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind));
    require(next.is_open() || (errno != ELOOP && errno != ENOTDIR), Status::kUnsupported, "'", file,
            "' is reached through a symbolic link or a file, which is not followed");
    if (!next.is_open()) fail_system(errno == ENOENT ? Status::kNotFound : Status::kIo, "open", file);
    opened = std::move(next);
  }
  return opened;
}

std::string read_inside(const std::string& folder, const std::string& file, size_t most_bytes) {
  const FileDescriptor opened = open_inside(folder, file);
  struct stat status {};
  if (::fstat(opened.number(), &status) != 0) fail_system(Status::kIo, "examine", file);
  require(S_ISREG(status.st_mode), Status::kUnsupported, "'", file, "' is not a regular file");
  const auto size = static_cast<size_t>(status.st_size);
  require(size <= most_bytes, Status::kUnsupported, "'", file, "' has ", size, " bytes; at most ", most_bytes,
          " are embedded");
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(opened.number(), bytes.data() + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(Status::kIo, "read", file);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

// Null if it is none that a browser shows without running anything.
const char* media_type(std::string_view bytes) {
  const auto begins = [bytes](std::string_view mark) { return bytes.substr(0, mark.size()) == mark; };
  if (begins("\x89PNG\r\n\x1a\n")) return "image/png";
  if (begins("\xff\xd8\xff")) return "image/jpeg";
  if (begins("GIF8")) return "image/gif";
  if (begins("RIFF") && bytes.substr(8, 4) == "WEBP") return "image/webp";
  if (begins("<svg") || (begins("<?xml") && bytes.substr(0, 1000).find("<svg") != std::string_view::npos))
    return "image/svg+xml";  // in <img>, where scripts and links of it are dead
  return nullptr;
}

}  // namespace

std::string embedded_picture(const std::string& folder, const std::string& file, size_t most_bytes) {
  const std::string bytes = read_inside(folder, file, most_bytes);
  const char* const type = media_type(bytes);
  require(type != nullptr, Status::kUnsupported, "'", file, "' is neither PNG, JPEG, GIF, WebP nor SVG");
  std::string encoded(sodium_base64_encoded_len(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(encoded.data(), encoded.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  encoded.resize(encoded.size() - 1);  // the NUL
  return text("data:", type, ";base64,", encoded);
}

}  // namespace accel::report
