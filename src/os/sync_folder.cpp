// SPDX-License-Identifier: Apache-2.0
#include "os/sync_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"
#include "os/system_error.hpp"

namespace accel {

void sync_folder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) fail_system(Status::kIo, "open the folder", path);
  if (::fsync(folder.number()) != 0 && errno != EINVAL) fail_system(Status::kIo, "make durable the folder", path);
}

}  // namespace accel
