#include "base/mapped_file.hpp"

#include <sys/mman.h>

#include "base/system_error.hpp"

namespace accel {

MappedFile::MappedFile(const RegularFile& file) : path_(file.path()) {
  if (file.size() == 0) return;
  void* const data = ::mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) fail_system(Status::kIo, "map", path_);
  data_ = static_cast<char*>(data);
  size_ = file.size();
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace accel
