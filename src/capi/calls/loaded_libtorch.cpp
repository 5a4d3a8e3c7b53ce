// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/loaded_libtorch.hpp"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "os/linker_error.hpp"
#include "os/loaded_file.hpp"

namespace accel::capi {
namespace {

template <typename Function>
std::string file_of(Function* function) {
  const std::string file = loaded_file_of(function);
  return file.empty() ? "an unknown file" : file;
}

std::filesystem::path folder_of(const std::string& file) {
  std::error_code missing;
  const std::filesystem::path path = std::filesystem::weakly_canonical(file, missing);
  if (missing == std::errc::not_enough_memory) throw std::bad_alloc();
  return (missing ? std::filesystem::path(file) : path).parent_path();
}

// A library or symbol that is missing has no version, unless memory was missing to look for it.
std::string no_version() {
  if (is_lack_of_memory(dlerror())) throw std::bad_alloc();
  return "";
}

// Asks this very file: a copy that came first can be too old to have the function, while a later one has it.
std::string version_of(const std::string& torch_cpu) {
  const std::unique_ptr<void, int (*)(void*)> library(dlopen(torch_cpu.c_str(), RTLD_LAZY | RTLD_NOLOAD), dlclose);
  if (library == nullptr) return no_version();
  // Part of LibTorch's stable C interface: a constant, one byte each for major, minor and patch.
  using AbiVersion = uint64_t();
  auto* const abi_version = reinterpret_cast<AbiVersion*>(dlsym(library.get(), "aoti_torch_abi_version"));
  if (abi_version == nullptr) return no_version();
  const uint64_t number = abi_version();
  return text(number >> 56, ".", number >> 48 & 0xff, ".", number >> 40 & 0xff);
}

}  // namespace

LoadedLibtorch loaded_libtorch() {
  const std::string torch_cpu = file_of(&at::get_num_threads);
  return {version_of(torch_cpu), torch_cpu, file_of(&c10::GetAllocator), file_of(&require_matching_libtorch)};
}

void check_libtorch(const LoadedLibtorch& loaded, std::string_view built_for) {
  const std::string version = loaded.version.empty() ? "of an unknown version" : loaded.version;
  require(loaded.version == built_for, Status::kUnsupported, "LibTorch ", version, " is loaded from ", loaded.torch_cpu,
          ", but ", loaded.accel, " was built for LibTorch ", built_for,
          "; load that version into this process, or build libaccel for the one that is loaded");
  require(folder_of(loaded.torch_cpu) == folder_of(loaded.c10), Status::kUnsupported,
          "parts of two LibTorchs are loaded, ", loaded.torch_cpu, " and ", loaded.c10, "; ", loaded.accel,
          " needs both from one folder: let one part of the program load LibTorch ", built_for, " first");
}

void require_matching_libtorch() { check_libtorch(loaded_libtorch(), TORCH_VERSION); }

}  // namespace accel::capi
