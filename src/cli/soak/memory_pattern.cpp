// SPDX-License-Identifier: Apache-2.0
#include "cli/soak/memory_pattern.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.hpp"

namespace accel::program {
namespace {

constexpr size_t kSliceWords = MemoryPattern::kSliceBytes / sizeof(uint64_t);

// Two passes have opposite bits, the next two others.
uint64_t word_of(uint64_t index, uint64_t pass) {
  const uint64_t mixed = (index + (pass / 2) * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
  const uint64_t word = mixed ^ (mixed >> 31);
  return pass % 2 == 0 ? word : ~word;
}

}  // namespace

MemoryPattern::MemoryPattern(size_t bytes) : slices_(std::max<size_t>((bytes + kSliceBytes - 1) / kSliceBytes, 1)) {
  void* const memory =
      ::mmap(nullptr, this->bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  require(memory != MAP_FAILED, Status::kOutOfMemory, "there is no memory for ", this->bytes(),
          " bytes of a pattern; end other programs");
  words_ = static_cast<uint64_t*>(memory);
}

MemoryPattern::~MemoryPattern() { ::munmap(words_, bytes()); }

std::optional<std::string> MemoryPattern::check_slice() {
  const size_t begin = next_ * kSliceWords, end = begin + kSliceWords;
  std::optional<std::string> problem;
  if (pass_ > 0) {
    for (size_t i = begin; i < end; i++) {
      const uint64_t expected = word_of(i, pass_ - 1);
      if (words_[i] == expected || problem) continue;
      problem = text("memory: word ", i, " differs in the bits ", words_[i] ^ expected, " from what was written");
    }
    compared_ += kSliceBytes;
  }
  for (size_t i = begin; i < end; i++) words_[i] = word_of(i, pass_);
  if (++next_ == slices_) {
    next_ = 0;
    pass_++;
  }
  return problem;
}

}  // namespace accel::program
