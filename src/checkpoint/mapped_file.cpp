#include "checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "checkpoint/file_system.hpp"

namespace accel::checkpoint {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Non-blocking, so that a pipe of that name cannot hold us up.
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.is_open())
    fail_system(errno == ENOENT || errno == ENOTDIR ? Status::kNotFound : Status::kIo, "open", path);
  struct stat status {};
  if (::fstat(descriptor.number(), &status) != 0) fail_system(Status::kIo, "examine", path);
  require(S_ISREG(status.st_mode), Status::kIo, "'", path, "' is not a regular file");
  if (status.st_size == 0) return;
  void* const data =
      ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor.number(), 0);
  if (data == MAP_FAILED) fail_system(Status::kIo, "map", path);
  data_ = static_cast<char*>(data);
  size_ = static_cast<size_t>(status.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace accel::checkpoint
