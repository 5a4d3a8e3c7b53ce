// SPDX-License-Identifier: Apache-2.0
#include "tensor/file_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"
#include "os/system_error.hpp"

namespace accel::tensor {
namespace {

FileDescriptor create_without_name(const std::string& folder, size_t size) {
  std::string path = folder + "/accel-offload-XXXXXX";
  FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file.is_open()) fail_system(Status::kIo, "create a file for offloaded tensors in", folder);
  ::unlink(path.c_str());
  errno = ::posix_fallocate(file.number(), 0, static_cast<off_t>(size));
  if (errno != 0) fail_system(Status::kIo, text("reserve ", size, " bytes for offloaded tensors in").c_str(), folder);
  return file;
}

}  // namespace

at::Tensor file_zeros(const std::string& folder, c10::IntArrayRef sizes, at::ScalarType dtype) {
  const size_t size = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  const auto options = at::TensorOptions().dtype(dtype);
  if (size == 0) return at::from_blob(nullptr, sizes, options);
  const FileDescriptor file = create_without_name(folder, size);
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (data == MAP_FAILED) fail_system(Status::kIo, "map a file for offloaded tensors in", folder);
  return at::from_blob(
      data, sizes, [size](void* mapped) { ::munmap(mapped, size); }, options);
}

namespace {

// The pages of a tensor on the CPU.
struct Pages {
  void* begin;
  size_t bytes;
};

size_t page_size() {
  static const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

Pages pages_of(const at::Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t begin = address / page_size() * page_size();
  return {reinterpret_cast<void*>(begin), address + tensor.nbytes() - begin};
}

}  // namespace

void read_ahead(const at::Tensor& tensor) noexcept {
  if (!tensor.is_cpu()) return;
  const Pages pages = pages_of(tensor);
  ::madvise(pages.begin, pages.bytes, MADV_WILLNEED);
}

bool is_in_memory(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return true;
  const Pages pages = pages_of(tensor);
  std::vector<unsigned char> states((pages.bytes + page_size() - 1) / page_size());
  if (::mincore(pages.begin, pages.bytes, states.data()) != 0) return true;
  return std::all_of(states.begin(), states.end(), [](unsigned char state) { return (state & 1) != 0; });
}

}  // namespace accel::tensor
