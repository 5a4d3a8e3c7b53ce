// SPDX-License-Identifier: Apache-2.0
// The calls that are recorded, in place of the C library's. Those that fail are not recorded.
#undef _FILE_OFFSET_BITS  // it would give open() and its like the names of their 64-bit forms, which stand here as well
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "file_recorder.hpp"

namespace {

using namespace power_cut;

std::optional<Inode> inode_of(const char* path) {
  struct stat found {};
  if (lstat(path, &found) != 0) return std::nullopt;
  return Inode{found.st_dev, found.st_ino};
}

std::optional<Inode> inode_of(int descriptor) {
  struct stat found {};
  if (fstat(descriptor, &found) != 0) return std::nullopt;
  return Inode{found.st_dev, found.st_ino};
}

std::pair<std::string, std::string> folder_and_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::optional<FileId> id_of(Recorder& to, const std::optional<Inode>& inode) {
  if (!inode) return std::nullopt;
  const auto found = to.ids.find(*inode);
  return found == to.ids.end() ? std::nullopt : std::optional(found->second);
}

// The folder of a path, if it is below the root, and the name in it.
std::optional<Name> name_of(Recorder& to, const char* path) {
  const auto [folder, name] = folder_and_name(path);
  const auto id = id_of(to, inode_of(folder.c_str()));
  if (!id) return std::nullopt;
  return Name{*id, name, std::nullopt};
}

void note_names(Recorder& to, std::vector<Name> names) {
  if (names.empty()) return;
  Operation operation(Operation::Kind::kNames);
  operation.names = std::move(names);
  to.add(std::move(operation));
}

void note_created(Recorder& to, const char* path, bool is_folder) {
  auto name = name_of(to, path);
  if (!name) return;
  const FileId id = to.next++;
  to.ids[*inode_of(path)] = id;
  Operation created(Operation::Kind::kCreate, id);
  created.is_folder = is_folder;
  to.add(std::move(created));
  name->file = id;
  note_names(to, {*name});
}

void note_size(Recorder& to, int descriptor, size_t size) {
  const auto id = id_of(to, inode_of(descriptor));
  if (!id) return;
  Operation resized(Operation::Kind::kResize, *id);
  resized.size = size;
  to.add(std::move(resized));
}

// The function of this name in the C library.
template <typename Function>
Function* behind(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Makes the call, and calls note(recorder, result) if it is recorded and has succeeded.
template <typename Call, typename Note>
auto recorded(const Call& call, const Note& note) {
  if (is_inside) return call(static_cast<Recorder*>(nullptr));
  Recorder& to = recorder();
  std::unique_lock lock(to.mutex);
  if (!to.is_on) {
    lock.unlock();
    return call(static_cast<Recorder*>(nullptr));
  }
  is_inside = true;
  const auto result = call(&to);
  const int error = errno;
  if (result >= 0) note(to, result);
  errno = error;
  is_inside = false;
  return result;
}

int open_recorded(int folder, const char* path, int flags, mode_t mode) {
  bool is_new = false;
  return recorded(
      [&](const Recorder* to) {
        is_new = to != nullptr && (flags & O_CREAT) != 0 && !inode_of(path);
        return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
      },
      [&](Recorder& to, int opened) {
        if (is_new)
          note_created(to, path, false);
        else if ((flags & O_TRUNC) != 0)
          note_size(to, opened, 0);
      });
}

void note_write(Recorder& to, int descriptor, const void* data, ssize_t size, off64_t offset) {
  const auto id = id_of(to, inode_of(descriptor));
  if (!id || size == 0) return;
  Operation written(Operation::Kind::kWrite, *id);
  written.offset = static_cast<size_t>(offset);
  written.bytes.assign(static_cast<const char*>(data), static_cast<size_t>(size));
  to.add(std::move(written));
}

int sync_recorded(int descriptor, long number) {
  struct stat found {};
  if (!syncs_folders && fstat(descriptor, &found) == 0 && S_ISDIR(found.st_mode)) {
    errno = EINVAL;
    return -1;
  }
  return recorded([&](const Recorder*) { return static_cast<int>(syscall(number, descriptor)); },
                  [&](Recorder& to, int) {
                    if (const auto id = id_of(to, inode_of(descriptor))) to.add(Operation(Operation::Kind::kSync, *id));
                  });
}

// A change of names: `change` makes it, and `names` says which, before it is made.
template <typename Names, typename Change>
int change_names(const Names& names, const Change& change) {
  std::vector<Name> changed;
  return recorded(
      [&](Recorder* to) {
        if (to != nullptr) changed = names(*to);
        return change();
      },
      [&](Recorder& to, int) { note_names(to, changed); });
}

std::vector<Name> moved(Recorder& to, const char* from, const char* target, bool exchanges) {
  const auto old_name = name_of(to, from), new_name = name_of(to, target);
  if (!old_name && !new_name) return {};
  if (!old_name || !new_name) {
    std::fprintf(stderr, "'%s' comes from or goes to a folder that is not recorded\n", from);
    std::abort();
  }
  return {{old_name->folder, old_name->name, exchanges ? id_of(to, inode_of(target)) : std::nullopt},
          {new_name->folder, new_name->name, id_of(to, inode_of(from))}};
}

std::vector<Name> removed(Recorder& to, const char* path) {
  const auto name = name_of(to, path);
  return name ? std::vector<Name>{*name} : std::vector<Name>();
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

#define OPENING(declaration, folder)                 \
  declaration {                                      \
    va_list arguments;                               \
    va_start(arguments, flags);                      \
    const mode_t mode = mode_of(flags, arguments);   \
    va_end(arguments);                               \
    return open_recorded(folder, path, flags, mode); \
  }

extern "C" {
OPENING(int open(const char* path, int flags, ...), AT_FDCWD)
OPENING(int open64(const char* path, int flags, ...), AT_FDCWD)
OPENING(int openat(int folder, const char* path, int flags, ...), folder)
OPENING(int openat64(int folder, const char* path, int flags, ...), folder)

// Its bytes end at the offset of the descriptor afterwards.
ssize_t write(int descriptor, const void* data, size_t size) {
  return recorded([&](const Recorder*) { return static_cast<ssize_t>(syscall(SYS_write, descriptor, data, size)); },
                  [&](Recorder& to, ssize_t written) {
                    note_write(to, descriptor, data, written, lseek64(descriptor, 0, SEEK_CUR) - written);
                  });
}
ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  return recorded(
      [&](const Recorder*) { return static_cast<ssize_t>(syscall(SYS_pwrite64, descriptor, data, size, offset)); },
      [&](Recorder& to, ssize_t written) { note_write(to, descriptor, data, written, offset); });
}
ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  return pwrite64(descriptor, data, size, offset);
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; i++) {
    const ssize_t written = write(descriptor, parts[i].iov_base, parts[i].iov_len);
    if (written < 0) return all > 0 ? all : written;
    all += written;
    if (static_cast<size_t>(written) < parts[i].iov_len) break;
  }
  return all;
}
int ftruncate64(int descriptor, off64_t size) {
  return recorded([&](const Recorder*) { return static_cast<int>(syscall(SYS_ftruncate, descriptor, size)); },
                  [&](Recorder& to, int) { note_size(to, descriptor, static_cast<size_t>(size)); });
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }
int fsync(int descriptor) { return sync_recorded(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return sync_recorded(descriptor, SYS_fdatasync); }
int mkdir(const char* path, mode_t mode) {
  return recorded([&](const Recorder*) { return static_cast<int>(syscall(SYS_mkdir, path, mode)); },
                  [&](Recorder& to, int) { note_created(to, path, true); });
}
int mkostemp64(char* path, int flags) {
  return recorded([&](const Recorder*) { return behind<int(char*, int)>("mkostemp64")(path, flags); },
                  [&](Recorder& to, int) { note_created(to, path, false); });
}
int mkostemp(char* path, int flags) { return mkostemp64(path, flags); }
int rename(const char* from, const char* target) noexcept {
  return change_names([&](Recorder& to) { return moved(to, from, target, false); },
                      [&] { return static_cast<int>(syscall(SYS_rename, from, target)); });
}
int link(const char* existing, const char* path) noexcept {
  if (!has_links) {
    errno = EPERM;
    return -1;
  }
  return change_names(
      [&](Recorder& to) {
        auto names = removed(to, path);
        for (Name& name : names) name.file = id_of(to, inode_of(existing));
        return names;
      },
      [&] { return static_cast<int>(syscall(SYS_link, existing, path)); });
}
int unlink(const char* path) noexcept {
  return change_names([&](Recorder& to) { return removed(to, path); },
                      [&] { return static_cast<int>(syscall(SYS_unlink, path)); });
}
int rmdir(const char* path) noexcept {
  return change_names([&](Recorder& to) { return removed(to, path); },
                      [&] { return static_cast<int>(syscall(SYS_rmdir, path)); });
}
int remove(const char* path) noexcept {
  const int result = unlink(path);
  return result != 0 && errno == EISDIR ? rmdir(path) : result;
}

// The library exchanges folders by the call's number.
long syscall(long number, ...) noexcept {
  static auto* const real = behind<long(long, ...)>("syscall");
  long values[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& value : values) value = va_arg(arguments, long);
  va_end(arguments);
  const auto call = [&] { return real(number, values[0], values[1], values[2], values[3], values[4], values[5]); };
  if (number != SYS_renameat2 || is_inside) return call();
  return change_names(
      [&](Recorder& to) {
        return moved(to, reinterpret_cast<const char*>(values[1]), reinterpret_cast<const char*>(values[3]),
                     (values[4] & RENAME_EXCHANGE) != 0);
      },
      [&] { return static_cast<int>(call()); });
}
}
