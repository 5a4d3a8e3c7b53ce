// Numbers of the ZIP format that reader and writer share. (PKWARE, "APPNOTE.TXT", version 6.3)
#pragma once

#include <cstdint>

namespace accel::checkpoint::zip {

// What each record begins with.
inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDescriptor = 0x08074b50;
inline constexpr uint32_t kCentralHeader = 0x02014b50;
inline constexpr uint32_t kEnd = 0x06054b50;
inline constexpr uint32_t kEnd64 = 0x06064b50;
inline constexpr uint32_t kLocator64 = 0x07064b50;

inline constexpr uint16_t kZip64Field = 1;         // of extra fields: numbers of 64 bits
inline constexpr uint64_t kIn64Bits = 0xffffffff;  // in place of a number that is there

}  // namespace accel::checkpoint::zip
