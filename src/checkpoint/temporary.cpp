#include "checkpoint/temporary.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

namespace accel::checkpoint {
namespace {

constexpr std::string_view kMark = ".accel-";
constexpr std::string_view kAside = "aside-";
constexpr size_t kRandomDigits = 16;

std::string prefix(const Target& target) { return "." + target.name + std::string(kMark); }

bool is_random(std::string_view text) {
  return text.size() == kRandomDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

struct Sibling {
  std::string path;
  bool aside;
};

std::vector<Sibling> siblings(const Target& target) {
  const auto close = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close)> folder(::opendir(target.parent.c_str()), close);
  std::vector<Sibling> found;
  if (folder == nullptr) return found;
  const std::string start = prefix(target);
  while (const dirent* entry = ::readdir(folder.get())) {
    std::string_view rest(entry->d_name);
    if (rest.substr(0, start.size()) != start) continue;
    rest.remove_prefix(start.size());
    const bool aside = rest.substr(0, kAside.size()) == kAside;
    if (aside) rest.remove_prefix(kAside.size());
    if (is_random(rest)) found.push_back({target.parent + "/" + entry->d_name, aside});
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
  std::array<char, kRandomDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x%08x", static_cast<unsigned>(source()),
                static_cast<unsigned>(source()));
  return target.parent + "/" + prefix(target) + (aside ? std::string(kAside) : "") + digits.data();
}

bool claim(int descriptor) {
  if (!try_lock(descriptor)) return errno != EWOULDBLOCK;  // without locks there are no cleaners either
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

bool try_lock(int descriptor) { return descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0; }

void restore_aside(const Target& target, FileSystem& files) {
  if (exists(target.full())) return;
  for (const Sibling& sibling : siblings(target)) {
    if (!sibling.aside) continue;
    const FileDescriptor descriptor = open_sibling(sibling.path);
    if (try_lock(descriptor.number()) && files.rename(sibling.path.c_str(), target.full().c_str()) == 0) return;
  }
}

void clean_leftovers(const Target& target, FileSystem& files) {
  restore_aside(target, files);
  const bool complete = exists(target.full());
  for (const Sibling& sibling : siblings(target)) {
    if (sibling.aside && !complete) continue;
    const FileDescriptor descriptor = open_sibling(sibling.path);
    if (try_lock(descriptor.number())) files.remove_tree(sibling.path.c_str());
  }
}

}  // namespace accel::checkpoint
