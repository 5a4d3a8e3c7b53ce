// SPDX-License-Identifier: Apache-2.0
#include "no_memory.hpp"

#include <cstdlib>
#include <new>

static thread_local bool has_no_memory = false;

NoMemory::NoMemory() { has_no_memory = true; }
NoMemory::~NoMemory() { has_no_memory = false; }

// Those of the program are those of its libraries.
#define EXPORTED __attribute__((visibility("default")))
EXPORTED void* operator new(std::size_t size) {
  void* const memory = has_no_memory ? nullptr : std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
EXPORTED void operator delete(void* memory) noexcept { std::free(memory); }
EXPORTED void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
