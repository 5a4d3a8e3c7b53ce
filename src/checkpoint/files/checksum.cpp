#include "checkpoint/files/checksum.hpp"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "kernels/parallel.hpp"

namespace accel::checkpoint {
namespace {

constexpr size_t kBlock = size_t{1} << 20;  // small enough to stay in a core's cache, large enough to be worth a task

uint32_t extend(uint32_t start, const unsigned char* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(start, bytes, size));
}

}  // namespace

void Checksum::add(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (size < 4 * kBlock) {
    if (size > 0) value_ = extend(value_, bytes, size);
    return;
  }
  const size_t count = (size + kBlock - 1) / kBlock;
  const auto length = [&](size_t block) { return std::min(kBlock, size - block * kBlock); };
  std::vector<uint32_t> parts(count);
  kernels::parallel_for(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (auto block = static_cast<size_t>(begin); block < static_cast<size_t>(end); block++)
      parts[block] = extend(0, bytes + block * kBlock, length(block));
  });
  for (size_t block = 0; block < count; block++)
    value_ = static_cast<uint32_t>(crc32_combine(value_, parts[block], static_cast<z_off_t>(length(block))));
}

uint32_t checksum_of(const void* data, size_t size) {
  Checksum checksum;
  checksum.add(data, size);
  return checksum.value();
}

}  // namespace accel::checkpoint
