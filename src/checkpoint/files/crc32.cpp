// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/crc32.hpp"

#include <libdeflate.h>

namespace accel::checkpoint {

void Crc32::add(const void* data, size_t size) {
  if (size > 0) value_ = libdeflate_crc32(value_, data, size);  // without data it would start anew
}

uint32_t crc32_of(const void* data, size_t size) {
  Crc32 crc;
  crc.add(data, size);
  return crc.value();
}

}  // namespace accel::checkpoint
