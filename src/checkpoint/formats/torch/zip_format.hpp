// SPDX-License-Identifier: Apache-2.0
// Numbers of the zip format that its reader and writer share.
#pragma once

#include <cstdint>

namespace accel::checkpoint::zip {

// First bytes of the records.
inline constexpr uint64_t kLocalHeader = 0x04034b50;
inline constexpr uint64_t kDescriptor = 0x08074b50;
inline constexpr uint64_t kCentralHeader = 0x02014b50;
inline constexpr uint64_t kEnd = 0x06054b50;
inline constexpr uint64_t kEnd64 = 0x06064b50;
inline constexpr uint64_t kLocator64 = 0x07064b50;

// Their sizes, without names, extra fields and comments.
inline constexpr uint64_t kLocalBytes = 30;
inline constexpr uint64_t kCentralBytes = 46;
inline constexpr uint64_t kEndBytes = 22;
inline constexpr uint64_t kEnd64Bytes = 56;
inline constexpr uint64_t kLocator64Bytes = 20;

inline constexpr uint64_t kZip64Field = 1;         // the extra field with numbers of 64 bits
inline constexpr uint64_t kIn64Bits = 0xffffffff;  // instead of a number that is there

}  // namespace accel::checkpoint::zip
