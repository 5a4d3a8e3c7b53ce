// SPDX-License-Identifier: Apache-2.0
#undef _FILE_OFFSET_BITS
#include "file_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace power_cut {
namespace {

[[noreturn]] void give_up(const char* what, const std::string& path) {
  std::fprintf(stderr, "cannot %s '%s': %s\n", what, path.c_str(), std::strerror(errno));
  std::abort();
}

// System calls by their numbers, because the functions are those that are recorded.
int open_unrecorded(const std::string& path, int flags) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), flags | O_CLOEXEC, 0666));
}

FileId read_into(const std::string& path, Tree& tree, const std::function<FileId(const Inode&)>& id_of) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) give_up("look at", path);
  const FileId id = id_of({found.st_dev, found.st_ino});
  File file;
  file.is_folder = S_ISDIR(found.st_mode);
  if (file.is_folder) {
    DIR* const folder = opendir(path.c_str());
    if (folder == nullptr) give_up("open", path);
    while (const dirent* const entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") file.names[name] = read_into(path + "/" + name, tree, id_of);
    }
    closedir(folder);
  } else {
    const int descriptor = open_unrecorded(path, O_RDONLY);
    if (descriptor < 0) give_up("open", path);
    file.bytes.resize(static_cast<size_t>(found.st_size));
    size_t done = 0;
    while (done < file.bytes.size()) {
      const ssize_t size = read(descriptor, file.bytes.data() + done, file.bytes.size() - done);
      if (size <= 0) give_up("read", path);
      done += static_cast<size_t>(size);
    }
    close(descriptor);
  }
  tree[id] = std::move(file);
  return id;
}

// Files of several names become several files.
void write_file(const File& file, const Tree& tree, const std::string& path) {
  if (file.is_folder) {
    if (syscall(SYS_mkdir, path.c_str(), 0777) != 0 && errno != EEXIST) give_up("make", path);
    for (const auto& [name, id] : file.names) write_file(tree.at(id), tree, path + "/" + name);
    return;
  }
  const int descriptor = open_unrecorded(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (descriptor < 0) give_up("create", path);
  if (syscall(SYS_write, descriptor, file.bytes.data(), file.bytes.size()) != static_cast<long>(file.bytes.size()))
    give_up("write", path);
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

}  // namespace

Tree read_tree(const std::string& folder, const std::function<FileId(const Inode&)>& id_of) {
  Tree tree;
  read_into(folder, tree, id_of);
  return tree;
}

Tree read_tree(const std::string& folder) {
  std::map<Inode, FileId> ids;
  return read_tree(folder, [&ids](const Inode& inode) { return ids.emplace(inode, ids.size()).first->second; });
}

void write_tree(const Tree& tree, const std::string& folder) { write_file(tree.at(0), tree, folder); }

std::string text_of(const Tree& tree) {
  std::string text;
  add_text(tree, 0, "", text);
  return text;
}

}  // namespace power_cut
