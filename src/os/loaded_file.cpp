// SPDX-License-Identifier: Apache-2.0
#include "os/loaded_file.hpp"

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>

namespace accel {
namespace {

struct Search {
  uintptr_t address;
  const char* name;  // null: not found
};

int look(dl_phdr_info* file, size_t, void* data) noexcept {
  auto& search = *static_cast<Search*>(data);
  for (int i = 0; i < file->dlpi_phnum; i++) {
    const ElfW(Phdr)& part = file->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = file->dlpi_addr + part.p_vaddr;
    if (search.address < begin || search.address - begin >= part.p_memsz) continue;
    search.name = file->dlpi_name;
    return 1;
  }
  return 0;
}

}  // namespace

std::string loaded_file_of(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address), nullptr};
  dl_iterate_phdr(look, &search);
  if (search.name == nullptr) return "";
  if (*search.name != '\0') return search.name;
  std::error_code unknown;  // the program itself has no name here
  return std::filesystem::read_symlink("/proc/self/exe", unknown).string();
}

}  // namespace accel
