// SPDX-License-Identifier: Apache-2.0
#undef _FILE_OFFSET_BITS  // it would give open() and its like the names of their 64-bit forms, which stand here as well
#include "recorded_files.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace power_cut {
namespace {

constexpr size_t kBlock = 4096;

using Place = std::pair<dev_t, ino_t>;  // of a file on the disk

struct Recorder {
  std::mutex mutex;
  bool is_on = false;
  std::string root;
  Recording recording;
  std::map<Place, FileId> ids;
  FileId next = 1;
};

Recorder& recorder() {
  static Recorder& instance = *std::make_unique<Recorder>().release();
  return instance;
}

thread_local bool is_inside = false;  // what this file does itself is not recorded

[[noreturn]] void give_up(const char* what, const std::string& path) {
  std::fprintf(stderr, "recorded_files: %s '%s': %s\n", what, path.c_str(), std::strerror(errno));
  std::abort();
}

std::optional<Place> place_of(const char* path) {
  struct stat found {};
  if (lstat(path, &found) != 0) return std::nullopt;
  return Place{found.st_dev, found.st_ino};
}

std::pair<std::string, std::string> folder_and_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// The recorder is locked in these.

std::optional<FileId> id_of(Recorder& to, const std::optional<Place>& place) {
  if (!place) return std::nullopt;
  const auto found = to.ids.find(*place);
  return found == to.ids.end() ? std::nullopt : std::optional(found->second);
}

// The folder of a path, if it is below the root.
std::optional<Name> name_of(Recorder& to, const char* path) {
  const auto [folder, name] = folder_and_name(path);
  const auto id = id_of(to, place_of(folder.c_str()));
  if (!id) return std::nullopt;
  return Name{*id, name, std::nullopt};
}

void note_names(Recorder& to, std::vector<Name> names) {
  Operation operation(Operation::Kind::kNames);
  operation.names = std::move(names);
  to.recording.operations.push_back(std::move(operation));
}

void note_created(Recorder& to, const char* path, bool is_folder) {
  auto name = name_of(to, path);
  if (!name) return;
  const FileId id = to.next++;
  to.ids[*place_of(path)] = id;
  Operation created(Operation::Kind::kCreate, id);
  created.is_folder = is_folder;
  to.recording.operations.push_back(std::move(created));
  name->file = id;
  note_names(to, {*name});
}

std::optional<FileId> id_of_descriptor(Recorder& to, int descriptor) {
  struct stat found {};
  if (fstat(descriptor, &found) != 0) return std::nullopt;
  return id_of(to, Place{found.st_dev, found.st_ino});
}

FileId read_into(const std::string& path, Tree& tree, const std::function<FileId(const Place&)>& id_for) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) give_up("cannot look at", path);
  const FileId id = id_for({found.st_dev, found.st_ino});
  File file;
  file.is_folder = S_ISDIR(found.st_mode);
  if (file.is_folder) {
    DIR* const folder = opendir(path.c_str());
    if (folder == nullptr) give_up("cannot open", path);
    while (const dirent* const entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") file.names[name] = read_into(path + "/" + name, tree, id_for);
    }
    closedir(folder);
  } else {
    const int descriptor = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
    if (descriptor < 0) give_up("cannot open", path);
    file.bytes.resize(static_cast<size_t>(found.st_size));
    size_t done = 0;
    while (done < file.bytes.size()) {
      const long size = syscall(SYS_read, descriptor, file.bytes.data() + done, file.bytes.size() - done);
      if (size <= 0) give_up("cannot read", path);
      done += static_cast<size_t>(size);
    }
    close(descriptor);
  }
  tree[id] = std::move(file);
  return id;
}

void write_file(const File& file, const Tree& tree, const std::string& path) {
  if (file.is_folder) {
    if (syscall(SYS_mkdir, path.c_str(), 0777) != 0 && errno != EEXIST) give_up("cannot make", path);
    for (const auto& [name, id] : file.names) write_file(tree.at(id), tree, path + "/" + name);
    return;
  }
  const int descriptor =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor < 0) give_up("cannot create", path);
  if (syscall(SYS_write, descriptor, file.bytes.data(), file.bytes.size()) != static_cast<long>(file.bytes.size()))
    give_up("cannot write", path);
  close(descriptor);
}

void add_text(const Tree& tree, FileId id, const std::string& path, std::string& text) {
  const File& file = tree.at(id);
  if (!file.is_folder) {
    text += path + '=' + std::to_string(file.bytes.size()) + ':' + file.bytes + '\n';
    return;
  }
  text += path + "/\n";
  for (const auto& [name, entry] : file.names) add_text(tree, entry, path + '/' + name, text);
}

// A power cut may leave a part of the operation.
void apply(const Operation& operation, Fate fate, Tree& tree) {
  File& file = tree[operation.file];
  switch (operation.kind) {
    case Operation::Kind::kCreate:
      file.is_folder = operation.is_folder;
      return;
    case Operation::Kind::kNames:
      for (const Name& name : operation.names) {
        if (name.file)
          tree[name.folder].names[name.name] = *name.file;
        else
          tree[name.folder].names.erase(name.name);
      }
      return;
    case Operation::Kind::kResize:
      file.bytes.resize(operation.size);
      return;
    case Operation::Kind::kWrite: {
      const size_t size = operation.bytes.size(), first = std::min(size, kBlock - operation.offset % kBlock);
      const size_t begin = fate == Fate::kAllButFirstBlock ? first : 0;
      const size_t end = fate == Fate::kSizeAlone ? 0 : fate == Fate::kFirstBlock ? first : size;
      const size_t known = fate == Fate::kFirstBlock ? operation.offset + end : operation.offset + size;
      if (file.bytes.size() < known) file.bytes.resize(known);
      if (end > begin) file.bytes.replace(operation.offset + begin, end - begin, operation.bytes, begin, end - begin);
      return;
    }
    case Operation::Kind::kSync:
      return;
  }
}

// Whether a sync among the first `count` operations has put operation i on the disk.
bool is_on_disk(const std::vector<Operation>& operations, size_t i, size_t count) {
  const auto synced = [&](FileId file) {
    for (size_t j = i + 1; j < count; j++)
      if (operations[j].kind == Operation::Kind::kSync && operations[j].file == file) return true;
    return false;
  };
  const Operation& operation = operations[i];
  switch (operation.kind) {
    case Operation::Kind::kCreate:  // without a name nobody sees it
    case Operation::Kind::kSync:
      return true;
    case Operation::Kind::kNames:
      return std::all_of(operation.names.begin(), operation.names.end(),
                         [&](const Name& name) { return synced(name.folder); });
    default:
      return synced(operation.file);
  }
}

std::vector<Fate> fates_of(const Operation& operation) {
  if (operation.kind != Operation::Kind::kWrite) return {Fate::kLost, Fate::kDone};
  if (operation.offset % kBlock + operation.bytes.size() <= kBlock) return {Fate::kLost, Fate::kDone, Fate::kSizeAlone};
  return {Fate::kLost, Fate::kDone, Fate::kSizeAlone, Fate::kFirstBlock, Fate::kAllButFirstBlock};
}

}  // namespace

std::string Operation::text() const {
  std::string result;
  switch (kind) {
    case Kind::kCreate:
      return "create " + std::to_string(file);
    case Kind::kWrite:
      return "write " + std::to_string(bytes.size()) + " bytes at " + std::to_string(offset) + " of " +
             std::to_string(file);
    case Kind::kResize:
      return "resize " + std::to_string(file) + " to " + std::to_string(size);
    case Kind::kSync:
      return "sync " + std::to_string(file);
    case Kind::kNames:
      for (const Name& name : names)
        result += (result.empty() ? "name " : ", ") + std::to_string(name.folder) + "/" + name.name + " -> " +
                  (name.file ? std::to_string(*name.file) : std::string("nothing"));
  }
  return result;
}

Tree Recording::after() const {
  return crash(*this, operations.size(), std::vector<Fate>(operations.size(), Fate::kDone));
}

void begin_recording(const std::string& folder) {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  is_inside = true;
  to.root = folder;
  to.recording = {};
  to.ids.clear();
  to.next = 0;
  read_into(folder, to.recording.before, [&to](const Place& place) {
    const auto [found, is_new] = to.ids.emplace(place, to.next);
    if (is_new) to.next++;
    return found->second;
  });
  to.is_on = true;
  is_inside = false;
}

Recording end_recording() {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  to.is_on = false;
  return std::move(to.recording);
}

Tree read_tree(const std::string& folder) {
  Tree tree;
  std::map<Place, FileId> ids;
  is_inside = true;
  read_into(folder, tree, [&ids](const Place& place) { return ids.emplace(place, ids.size()).first->second; });
  is_inside = false;
  return tree;
}

std::string text_of(const Tree& tree) {
  std::string text;
  add_text(tree, 0, "", text);
  return text;
}

bool are_equal(const Tree& one, const Tree& other) { return text_of(one) == text_of(other); }

void write_tree(const Tree& tree, const std::string& folder) {
  is_inside = true;
  write_file(tree.at(0), tree, folder);
  is_inside = false;
}

Tree crash(const Recording& recording, size_t count, const std::vector<Fate>& fates) {
  Tree tree = recording.before;
  for (size_t i = 0; i < count; i++)
    if (fates[i] != Fate::kLost) apply(recording.operations[i], fates[i], tree);
  return tree;
}

void for_each_crash(const Recording& recording, size_t most, std::mt19937_64& random, const Visit& visit) {
  const std::vector<Operation>& operations = recording.operations;
  for (size_t count = 0; count <= operations.size(); count++) {
    std::vector<Fate> fates(operations.size(), Fate::kDone);
    std::vector<size_t> open;
    std::vector<std::vector<Fate>> choices;
    double combinations = 1;
    for (size_t i = 0; i < count; i++) {
      if (is_on_disk(operations, i, count)) continue;
      open.push_back(i);
      choices.push_back(fates_of(operations[i]));
      combinations *= static_cast<double>(choices.back().size());
    }
    const bool is_complete = combinations <= static_cast<double>(most);
    const size_t visits = is_complete ? static_cast<size_t>(combinations) : most;
    for (size_t visited = 0; visited < visits; visited++) {
      size_t number = visited;
      for (size_t i = 0; i < open.size(); i++) {
        const size_t size = choices[i].size();
        fates[open[i]] = choices[i][is_complete ? number % size : random() % size];
        number /= size;
      }
      visit(count, fates);
    }
  }
}

}  // namespace power_cut

// The calls. The recorder notes those that have succeeded.

namespace {

using namespace power_cut;

// NAME of the C library, behind this one.
template <typename Function>
Function* behind(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Runs `note` with the recorder if it is on.
template <typename Note>
void record(const Note& note) {
  if (is_inside) return;
  const int error = errno;
  is_inside = true;
  Recorder& to = recorder();
  {
    const std::lock_guard lock(to.mutex);
    if (to.is_on) note(to);
  }
  is_inside = false;
  errno = error;
}

bool is_recording() {
  if (is_inside) return false;
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  return to.is_on;
}

int open_recorded(int folder, const char* path, int flags, mode_t mode) {
  const bool may_create = (flags & O_CREAT) != 0 && is_recording();
  const bool was_there = may_create && place_of(path).has_value();
  const int opened = static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
  if (opened < 0) return opened;
  if (may_create && !was_there) record([&](Recorder& to) { note_created(to, path, false); });
  if ((flags & O_TRUNC) != 0 && (!may_create || was_there))
    record([&](Recorder& to) {
      const auto id = id_of_descriptor(to, opened);
      if (!id) return;
      Operation emptied(Operation::Kind::kResize, *id);
      to.recording.operations.push_back(std::move(emptied));
    });
  return opened;
}

void note_write(int descriptor, const void* data, ssize_t size, off_t offset) {
  if (size <= 0) return;
  record([&](Recorder& to) {
    const auto id = id_of_descriptor(to, descriptor);
    if (!id) return;
    Operation written(Operation::Kind::kWrite, *id);
    written.offset = static_cast<size_t>(offset);
    written.bytes.assign(static_cast<const char*>(data), static_cast<size_t>(size));
    to.recording.operations.push_back(std::move(written));
  });
}

// Where write() puts its bytes, which end at the place of the descriptor afterwards.
off_t before_last_write(int descriptor, ssize_t size) { return lseek(descriptor, 0, SEEK_CUR) - size; }

int sync_recorded(int descriptor, int result) {
  if (result == 0)
    record([&](Recorder& to) {
      const auto id = id_of_descriptor(to, descriptor);
      if (!id) return;
      Operation synced(Operation::Kind::kSync, *id);
      to.recording.operations.push_back(std::move(synced));
    });
  return result;
}

// A change of names: `change` does it, and `names` says which, before it is done.
template <typename Names, typename Change>
int change_names(const Names& names, const Change& change) {
  std::vector<Name> changed;
  record([&](Recorder& to) { changed = names(to); });
  const int result = change();
  if (result == 0 && !changed.empty()) record([&](Recorder& to) { note_names(to, changed); });
  return result;
}

std::vector<Name> moved(Recorder& to, const char* from, const char* target, bool exchanges) {
  const auto old_name = name_of(to, from), new_name = name_of(to, target);
  if (!old_name && !new_name) return {};
  if (!old_name || !new_name) give_up("a file comes from or goes to another folder:", from);
  return {{old_name->folder, old_name->name, exchanges ? id_of(to, place_of(target)) : std::nullopt},
          {new_name->folder, new_name->name, id_of(to, place_of(from))}};
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

ssize_t write(int descriptor, const void* data, size_t size) {
  const ssize_t written = static_cast<ssize_t>(syscall(SYS_write, descriptor, data, size));
  if (written > 0 && is_recording()) note_write(descriptor, data, written, before_last_write(descriptor, written));
  return written;
}
ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  const ssize_t written = static_cast<ssize_t>(syscall(SYS_pwrite64, descriptor, data, size, offset));
  note_write(descriptor, data, written, offset);
  return written;
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
  const int result = static_cast<int>(syscall(SYS_ftruncate, descriptor, size));
  if (result == 0)
    record([&](Recorder& to) {
      const auto id = id_of_descriptor(to, descriptor);
      if (!id) return;
      Operation resized(Operation::Kind::kResize, *id);
      resized.size = static_cast<size_t>(size);
      to.recording.operations.push_back(std::move(resized));
    });
  return result;
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }
int fsync(int descriptor) { return sync_recorded(descriptor, static_cast<int>(syscall(SYS_fsync, descriptor))); }
int fdatasync(int descriptor) {
  return sync_recorded(descriptor, static_cast<int>(syscall(SYS_fdatasync, descriptor)));
}
int mkdir(const char* path, mode_t mode) {
  const int result = static_cast<int>(syscall(SYS_mkdir, path, mode));
  if (result == 0) record([&](Recorder& to) { note_created(to, path, true); });
  return result;
}
int mkostemp64(char* path, int flags) {
  const int made = behind<int(char*, int)>("mkostemp64")(path, flags);
  if (made >= 0) record([&](Recorder& to) { note_created(to, path, false); });
  return made;
}
int mkostemp(char* path, int flags) { return mkostemp64(path, flags); }
int rename(const char* from, const char* target) noexcept {
  return change_names([&](Recorder& to) { return moved(to, from, target, false); },
                      [&] { return static_cast<int>(syscall(SYS_rename, from, target)); });
}
int link(const char* existing, const char* path) noexcept {
  return change_names(
      [&](Recorder& to) {
        auto names = removed(to, path);
        for (Name& name : names) name.file = id_of(to, place_of(existing));
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
