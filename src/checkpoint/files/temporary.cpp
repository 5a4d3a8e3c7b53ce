// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/temporary.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string_view>
#include <vector>

#include "checkpoint/files/content_hash.hpp"
#include "os/list_folder.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kMark = ".accel-";
constexpr std::string_view kAside = "aside-";
constexpr size_t kHostDigits = 8;
constexpr size_t kDigits = 2 * kHostDigits;  // of the host, then of chance

std::string hexadecimal(uint32_t number) {
  std::array<char, kHostDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", number);
  return digits.data();
}

// Not every shared file system shows locks of other hosts, so the name has the host of the writer.
std::string host_digits() {
  utsname system{};
  ::uname(&system);
  std::string host = system.nodename;
  const FileDescriptor file(::open("/etc/machine-id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> id{};
  const ssize_t size = file.is_open() ? ::read(file.number(), id.data(), id.size()) : 0;
  if (size > 0) host.append(id.data(), static_cast<size_t>(size));
  return hexadecimal(static_cast<uint32_t>(hash_of(host.data(), host.size())));
}

bool are_digits(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

// The parts of a temporary name.
struct Sibling {
  std::string path;
  std::string target;
  std::string host;
  bool aside;
};

std::vector<std::string> names_in(const std::string& folder) {
  try {
    return list_folder(folder);
  } catch (const Error&) {
    return {};  // what cannot be listed cannot be cleaned
  }
}

// The siblings of all targets in a folder.
std::vector<Sibling> siblings_in(const std::string& parent) {
  std::vector<Sibling> found;
  for (const std::string& name : names_in(parent)) {
    const size_t mark = name.rfind(kMark);
    if (name[0] != '.' || mark == std::string::npos || mark == 0) continue;
    std::string_view digits = std::string_view(name).substr(mark + kMark.size());
    const bool aside = digits.substr(0, kAside.size()) == kAside;
    if (aside) digits.remove_prefix(kAside.size());
    if (!are_digits(digits)) continue;
    found.push_back({parent + "/" + name, name.substr(1, mark - 1), std::string(digits.substr(0, kHostDigits)), aside});
  }
  return found;
}

// Non-blocking: a sibling could be anything.
FileDescriptor open_sibling(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

Target::Target(const std::string& path) {
  namespace fs = std::filesystem;
  require(!path.empty(), Status::kInvalidArgument, "the path is empty; expected the name of a file or folder");
  std::error_code error;
  fs::path full = fs::absolute(path, error).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  if (fs::is_symlink(full, error)) {
    const fs::path real = fs::canonical(full, error);
    require(!error, Status::kIo, "'", path, "' is a link to nothing; expected a file, a folder or a free name");
    full = real;
  }
  parent = full.parent_path().string();
  name = full.filename().string();
  require(!name.empty() && name != "..", Status::kInvalidArgument, "'", path,
          "' has no name of its own; expected the name of a file or folder");
}

std::string temporary_sibling(const Target& target, bool aside) {
  std::random_device source;
  return target.parent + "/." + target.name + std::string(kMark) + (aside ? std::string(kAside) : "") + host_digits() +
         hexadecimal(source());
}

bool claim(int descriptor) {
  if (!try_lock(descriptor)) return errno != EWOULDBLOCK;  // without locks there are no cleaners either
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

bool try_lock(int descriptor) { return descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0; }

void restore_aside(const Target& target, FileSystem& files) {
  if (exists(target.full())) return;
  for (const Sibling& sibling : siblings_in(target.parent)) {
    if (!sibling.aside || sibling.target != target.name) continue;
    const FileDescriptor descriptor = open_sibling(sibling.path);
    if (try_lock(descriptor.number()) && files.rename(sibling.path.c_str(), target.full().c_str()) == 0) return;
  }
}

void clean_leftovers(const Target& target, FileSystem& files) {
  restore_aside(target, files);
  const bool complete = exists(target.full());
  const std::string host = host_digits();
  for (const Sibling& sibling : siblings_in(target.parent)) {
    const bool is_own = sibling.target == target.name;
    if (!is_own && sibling.host != host) continue;
    if (sibling.aside && !(is_own && complete)) continue;
    const FileDescriptor descriptor = open_sibling(sibling.path);
    if (try_lock(descriptor.number())) files.remove_tree(sibling.path.c_str());
  }
}

}  // namespace accel::checkpoint
